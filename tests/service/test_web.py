"""The service over real HTTP: everything that can be asked of it, against the index itself."""

from __future__ import annotations

import io
import re
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from hashgrove import FastHash, FlatIndex, evaluate, hamming
from hashgrove import load as load_model
from hashgrove.index import Rerank, build_index, load_index
from hashgrove.web.collection import Collection
from hashgrove.web.details import Details
from hashgrove.web.images import large_image, thumbnail
from hashgrove.web.opening import open_index
from hashgrove.web.schemas import SearchOptions, SearchRequest
from web_service import N_BITS, N_ITEMS, build_digits, error_of, open_digits, served


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The folder, the features and the names of the digits."""
    folder = tmp_path_factory.mktemp("digits")
    return folder, *build_digits(folder)


@pytest.fixture(scope="module")
def client(digits):
    with served(open_digits(digits[0], read_only=True)) as found:
        yield found


@pytest.fixture(scope="module")
def index(digits):
    return load_index(digits[0] / "digits.hgi")


@pytest.fixture
def numbers(tmp_path):
    """A service over an index with integer ids that can be changed, and the folder of the index."""
    codes = np.random.default_rng(0).integers(0, 256, (50, 4), dtype=np.uint8)
    FlatIndex(codes).save(tmp_path / "codes.hgi")
    with served(open_index(str(tmp_path / "codes.hgi"))) as found:
        yield found, tmp_path / "codes.hgi", codes


def found_by(answer):
    """(ids, distances) of the first query of an answer."""
    assert answer.status_code == 200, answer.text
    (hits,) = answer.json()["results"]
    return [hit["id"] for hit in hits], [hit["distance"] for hit in hits]


def search(client, **asked):
    return client.post("/search", json=asked)


def test_info_says_what_there_is(client):
    info = client.get("/info").json()
    expected = {
        "items": N_ITEMS, "n_bits": N_BITS, "n_features": 128, "id_kind": "text", "has_model": True, "has_images": True,
        "takes_images": True, "has_labels": True, "can_rerank": True, "takes_weights": True, "read_only": True,
        "needs_key": False, "name": "digits.hgi", "labels": [str(digit) for digit in range(10)],
    }  # fmt: skip
    assert {name: info[name] for name in expected} == expected
    health = client.get("/health").json()
    assert (health["status"], health["items"]) == ("ok", N_ITEMS)


def test_items_are_listed_page_by_page_in_the_order_in_which_they_were_added(client, digits):
    names = digits[2]
    assert names != sorted(names)
    first = client.get("/items", params={"limit": 50}).json()
    last = client.get("/items", params={"offset": 100, "limit": 50}).json()
    assert first["total"] == last["total"] == N_ITEMS
    assert [item["id"] for item in first["items"]] == names[:50]
    assert [item["id"] for item in last["items"]] == names[100:]
    threes = client.get("/items", params={"label": "3", "limit": 500}).json()
    assert [item["id"] for item in threes["items"]] == [name for name in names if name.startswith("3/")]
    assert threes["total"] == len(threes["items"])
    assert {item["label"] for item in threes["items"]} == {"3"}


def test_an_item_has_its_code_and_its_image(client, digits, index):
    name = digits[2][7]
    item = client.get(f"/items/{name.replace('/', '%2F')}").json()
    code = index.codes[index.ids == name][0]
    assert item["code"] == code.tobytes().hex()
    assert item["bits"] == "".join(map(str, np.unpackbits(code, bitorder="little")))
    image = client.get(item["image"])
    assert image.headers["content-type"] == "image/png"
    with Image.open(io.BytesIO(image.content)) as shown, Image.open(digits[0] / "images" / name) as file:
        assert shown.tobytes() == file.convert("RGB").tobytes()
    assert client.get(item["image"], params={"large": True}).content == image.content  # it is not enlarged
    assert error_of(client.get("/items/nobody"), 404)["field"] == "id"
    assert error_of(client.get("/images/nobody.png"), 404)["field"] == "id"


def test_images_are_reduced_to_two_sizes(tmp_path):
    path = str(tmp_path / "photo.jpg")
    Image.new("RGB", (3000, 1500), "red").save(path)
    for function, size in ((thumbnail, (256, 128)), (large_image, (1024, 512))):
        with Image.open(io.BytesIO(function(path))) as shown:
            assert (shown.size, shown.format) == (size, "JPEG")
        assert function(str(tmp_path / "none.jpg")) is None


def test_search_by_features_codes_and_id_give_what_the_index_gives(client, digits, index):
    X, names = digits[1:]
    model = load_model(digits[0] / "digits.hgi" / "model.hashgrove")
    codes = model.encoder.encode(X)
    for row in (0, 5):
        distances, ids = index.search(codes[[row]], 7)
        expected = ids[0].tolist(), distances[0].tolist()
        assert found_by(search(client, features=[X[row].tolist()], k=7, plain=True)) == expected
        by_code = search(client, codes=[codes[row].tobytes().hex()], k=7, model=model.digest)
        assert found_by(by_code) == expected
        assert found_by(search(client, id=names[row], k=7, plain=True)) == expected
    several = search(client, features=X[:5].tolist(), k=3, plain=True).json()
    distances, ids = index.search(codes[:5], 3)
    assert [[hit["id"] for hit in hits] for hits in several["results"]] == ids.tolist()
    assert [query["code"] for query in several["queries"]] == [code.tobytes().hex() for code in codes[:5]]
    assert set(several["timings"]) == {"encode", "wait", "search", "total"}


def test_search_by_an_image_is_search_by_its_features(client, digits):
    X, names = digits[1:]
    content = (digits[0] / "images" / names[3]).read_bytes()
    answer = client.post("/search", files={"image": ("a.png", content)}, data={"k": "6", "show_code": "true"})
    assert found_by(answer) == found_by(search(client, features=[X[3].tolist()], k=6))
    assert set(answer.json()["results"][0][0]) >= {"id", "label", "name", "image", "code", "bits", "distance"}
    weighted = client.post("/search", files={"image": ("a.png", content)}, data={"weights": "1", "label": "3"})
    assert found_by(weighted) == found_by(search(client, features=[X[3].tolist()], weights=True, label="3"))


def test_radius_label_and_allowed_restrict_the_search(client, digits, index):
    names = digits[2]
    code = index.codes[index.ids == names[0]]
    distances = hamming(code, index.codes)[0]
    near = sorted(zip(distances.tolist(), index.ids.tolist(), strict=True))
    inside = [(distance, name) for distance, name in near if distance <= 9]
    assert len(inside) > 3
    ids, found = found_by(search(client, id=names[0], radius=9))
    assert list(zip(found, ids, strict=True)) == inside
    assert found_by(search(client, id=names[0], radius=9, k=2))[0] == ids[:2]
    labelled = [name for _, name in near if name.startswith("5/")]
    assert found_by(search(client, id=names[0], label="5", k=1000, plain=True))[0] == labelled
    some = [*labelled[:2], "nobody", names[0]]
    assert found_by(search(client, id=names[0], allowed=some, plain=True))[0] == [names[0], *labelled[:2]]
    assert found_by(search(client, id=names[0], allowed=some, label="5", plain=True))[0] == labelled[:2]
    assert found_by(search(client, id=names[0], label="none such"))[0] == []


def test_a_radius_search_that_was_cut_says_so(numbers):
    client, _, codes = numbers
    within = (hamming(codes[:2], codes) <= 12).sum(axis=1).tolist()
    k = max(within) - 1
    assert 0 < min(within) <= k  # one of the two queries is cut
    asked = {"codes": [code.tobytes().hex() for code in codes[:2]], "radius": 12}
    answer = search(client, **asked, k=k).json()
    assert [query["truncated"] for query in answer["queries"]] == [count > k for count in within]
    assert [len(hits) for hits in answer["results"]] == [min(count, k) for count in within]
    exact = search(client, **asked, k=k + 1).json()
    assert [query["truncated"] for query in exact["queries"]] == [False, False]
    assert "truncated" not in search(client, codes=asked["codes"], k=k).json()["queries"][0]
    binary = {"content-type": "application/octet-stream", "accept": "application/octet-stream"}
    params = {"kind": "codes", "radius": 12, "k": k}
    body = client.post("/search", params=params, content=codes[:2].tobytes(), headers=binary).content
    counts = [min(count, k) for count in within]
    assert np.frombuffer(body[:20], "<u4").tolist() == [2, *counts, *(int(count > k) for count in within)]


def test_codes_need_the_model_of_an_index_that_knows_its_own(client, digits, index):
    code = index.codes[0].tobytes()
    asked = {"codes": [code.hex()]}
    digest = client.get("/info").json()["model"]
    encoded = client.post("/encode", json={"features": digits[1][:1].tolist()}).json()
    assert encoded["model"] == digest == index.model
    assert found_by(search(client, **asked, model=digest))[1][0] == 0
    assert "must be given with codes" in error_of(search(client, **asked), 422)["message"]
    for wrong in (asked, {"id": digits[2][0]}, {"features": digits[1][:1].tolist()}):
        error = error_of(search(client, **wrong, model="0" * 64), 422)
        assert (error["field"], "different models" in error["message"]) == ("model", True)
    binary = {"content-type": "application/octet-stream"}
    assert error_of(client.post("/search?kind=codes", content=code, headers=binary), 422)["field"] == "model"
    right = client.post("/search", params={"kind": "codes", "model": digest}, content=code, headers=binary)
    assert found_by(right) == found_by(search(client, **asked, model=digest))


def test_new_codes_need_the_model_of_an_index_that_knows_its_own(tmp_path):
    codes = np.arange(8, dtype=np.uint8).reshape(2, 4)
    with served(Collection(FlatIndex(codes, model="a" * 64), name="known")) as client:
        new = {"items": [{"code": "00000000"}]}
        assert error_of(client.post("/items", json=new), 422)["field"] == "model"
        assert error_of(client.post("/items", json=new | {"model": "b" * 64}), 422)["field"] == "model"
        binary = {"content-type": "application/octet-stream"}
        assert error_of(client.post("/items?kind=codes", content=bytes(4), headers=binary), 422)["field"] == "model"
        assert client.get("/health").json()["items"] == 2
        assert client.post("/items", json=new | {"model": "a" * 64}).json()["ids"] == ["2"]
        params = {"kind": "codes", "model": "a" * 64}
        assert client.post("/items", params=params, content=bytes(4), headers=binary).json()["ids"] == ["3"]


def test_every_search_option_is_in_every_type_of_body(client):
    operation = client.get("/openapi.json").json()["paths"]["/search"]["post"]
    options = set(SearchOptions.model_fields)
    form = operation["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
    assert set(form) == options | {"image"}
    assert {parameter["name"] for parameter in operation["parameters"]} == options | {"kind"}
    assert set(SearchRequest.model_fields) == options | {"features", "codes", "id"}


def test_rerank_and_weights_give_what_the_index_gives(client, digits, index):
    X, names = digits[1:]
    encoder = load_model(digits[0] / "digits.hgi" / "model.hashgrove").encoder
    codes = encoder.encode(X[:1])
    distances, ids = index.search(codes, 5, rerank=Rerank(), features=X[:1])
    found, shown = found_by(search(client, features=[X[0].tolist()], k=5, rerank=True))
    assert found == ids[0].tolist()
    assert shown == pytest.approx(distances[0].tolist(), abs=1e-4)
    distances, ids = index.search(codes, 5, weights=np.abs(encoder.scores(X[:1])))
    found, shown = found_by(search(client, features=[X[0].tolist()], k=5, weights=True))
    assert found == ids[0].tolist()
    assert shown == pytest.approx(distances[0].tolist(), abs=1e-4)
    assert found_by(search(client, id=names[0], k=1, rerank=True))[0] == [names[0]]
    for asked in ({"features": [X[0].tolist()]}, {"id": names[4]}):  # and so it is without being asked for
        answer = search(client, **asked, k=5)
        row = 4 if "id" in asked else 0
        here = index.codes[index.ids == names[row]]
        nearest = index.search(here, 5, rerank=Rerank(oversample=1), features=X[[row]])
        assert found_by(answer)[0] == nearest.ids[0].tolist()
        assert answer.json()["ranked_by"] == client.get("/info").json()["default_ranking"] == "features"


def test_a_histogram_counts_all_items(client, digits, index):
    answer = search(client, id=digits[2][0], show_histogram=True, label="1").json()
    distances = hamming(index.codes[index.ids == digits[2][0]], index.codes)[0]
    assert answer["queries"][0]["histogram"] == np.bincount(distances, minlength=N_BITS + 1).tolist()


def ready_report(client):
    while (answer := client.get("/report").json())["status"] == "running":
        time.sleep(0.05)
    assert answer["status"] == "ready"
    return answer["report"]


def test_the_report_says_what_is_known_about_training_and_is_never_stale(tmp_path):
    digits = load_digits()
    X, y = digits.data[:400], digits.target[:400]
    hasher = FastHash(16, hash_function="posterior", random_state=0).fit(X[:200], y[:200], validation=0.2)
    index = build_index(hasher.transform(X[:200]))
    index.keep_features(X[:200])
    index.save(tmp_path / "d.hgi")
    hasher.save(tmp_path / "d.hgi" / "model.hashgrove")
    opened = open_index(str(tmp_path / "d.hgi"))
    collection = replace(opened, details=Details(np.arange(400), labels=y.astype(str)))
    with served(collection) as client:
        first = ready_report(client)
        assert (first["trained_share"], first["n_items"]) == (1.0, 200)
        assert first["validation"]["n_held_out"] == 40
        assert first["validation"]["rows"][0]["map"] == hasher.validation_.map
        assert client.post("/items", json={"items": [{"features": row.tolist()} for row in X[200:]]}).status_code == 201
        assert ready_report(client)["n_items"] == 400
        for number in range(200):
            assert client.delete(f"/items/{number}").status_code == 200
        second = ready_report(client)
        assert (second["trained_share"], second["n_items"]) == (0.0, 200)
        assert second["map"] < first["map"]


def test_the_report_is_that_of_evaluate(client, digits, index):
    while (answer := client.get("/report").json())["status"] == "running":
        time.sleep(0.05)
    labels = [name.split("/")[0] for name in index.ids]
    expected = evaluate(index.codes, index.codes, y_queries=labels, y_database=labels, exclude_self=True)
    report = answer["report"]
    assert report["map"] == pytest.approx(expected.map, abs=1e-4)
    assert [entry["map"] for entry in report["per_class"]] == pytest.approx(expected.class_map.tolist(), abs=1e-4)
    assert sum(entry["items"] for entry in report["per_class"]) == N_ITEMS
    assert report["distinct"]["codes"] == expected.n_distinct
    assert report["precision"][0][0] == 1


def test_binary_bodies_and_answers(numbers):
    client, folder, codes = numbers
    binary = {"content-type": "application/octet-stream", "accept": "application/octet-stream"}
    answer = client.post("/search", params={"kind": "codes", "k": 3}, content=codes[:2].tobytes(), headers=binary)
    body = answer.content
    assert answer.headers["content-type"] == "application/octet-stream"
    assert np.frombuffer(body[:20], "<u4").tolist() == [2, 3, 3, 0, 0]
    distances, ids = load_index(folder).search(codes[:2], 3)
    assert np.frombuffer(body[20:44], "<f4").tolist() == distances.ravel().tolist()
    assert np.frombuffer(body[44:], "<i8").tolist() == ids.ravel().tolist()
    new = np.full((2, 4), 7, np.uint8)
    added = client.post("/items", params={"kind": "codes", "id": ["900", "901"]}, content=new.tobytes(), headers=binary)
    assert added.json() == {"ids": ["900", "901"], "items": 52}
    assert load_index(folder).codes[-2:].tolist() == new.tolist()


def test_binary_features(client, digits):
    X = digits[1][:3].astype("<f4")
    binary = {"content-type": "application/octet-stream"}
    encoded = client.post("/encode", content=X.tobytes(), headers=binary | {"accept": "application/octet-stream"})
    codes = client.post("/encode", json={"features": X.tolist()}).json()["codes"]
    assert encoded.content == bytes.fromhex("".join(codes))
    found = client.post("/search", content=X[:1].tobytes(), headers=binary)
    assert found_by(found) == found_by(search(client, features=X[:1].tolist()))
    refused = client.post("/search", content=X.tobytes(), headers=binary | {"accept": "application/octet-stream"})
    assert "texts" in error_of(refused, 406)["message"]


def test_items_are_added_replaced_and_removed_on_disk(numbers):
    client, folder, _ = numbers
    large = 2**53 + 1  # a number that JavaScript cannot hold
    added = client.post("/items", json={"items": [{"id": large, "code": "01020304"}, {"id": "77", "code": "ffffffff"}]})
    assert added.status_code == 201
    assert added.json() == {"ids": [str(large), "77"], "items": 52}
    assert large in load_index(folder)
    assert found_by(search(client, codes=["01020304"], k=1))[0] == [str(large)]
    assert client.get(f"/items/{large}").json()["code"] == "01020304"
    again = {"items": [{"id": 77, "code": "00000000"}, {"id": 78, "code": "00000000"}]}
    assert error_of(client.post("/items", json=again), 409)["field"] == "id"
    assert 78 not in load_index(folder)
    assert client.post("/items", json=again | {"replace": True}).json()["items"] == 53
    assert client.get("/items/77").json()["code"] == "00000000"
    assert client.delete("/items/77").json() == {"removed": 1, "items": 52}
    assert 77 not in load_index(folder)
    assert error_of(client.delete("/items/77"), 404)["field"] == "id"
    numbered = client.post("/items", json={"items": [{"code": "00000000"}]}).json()
    assert numbered["ids"] == [str(large + 1)]


def test_many_changes_make_room(numbers):
    client, folder, _ = numbers
    for _ in range(12):
        items = [{"id": 1000 + number, "code": "01020304"} for number in range(400)]
        assert client.post("/items", json={"items": items, "replace": True}).status_code == 201
    assert client.get("/health").json()["items"] == len(load_index(folder)) == 450
    assert sum(path.stat().st_size for path in folder.glob("codes-*.bin")) < 12 * 400 * 4


def test_new_items_of_a_model_can_be_searched_and_re_ranked(tmp_path):
    X, _ = build_digits(tmp_path)
    with served(open_digits(tmp_path)) as client:
        new = {"id": "new", "features": X[0].tolist()}
        assert client.post("/items", json={"items": [new]}).json()["ids"] == ["new"]
        ids, distances = found_by(search(client, features=[X[0].tolist()], k=2, rerank=True))
        assert set(ids) == {"new", "0/000.png"}
        assert distances == pytest.approx([0, 0], abs=1e-4)
        by_code = client.post("/items", json={"items": [{"id": "other", "code": "00000000"}]})
        assert error_of(by_code, 422)["field"] == "items.code"
    reopened = load_index(tmp_path / "digits.hgi")
    assert "new" in reopened
    assert reopened.features.of(["new"])[0] == pytest.approx(X[0], abs=float(np.abs(X[0]).max()) / 127)


def test_a_removed_or_replaced_item_has_no_old_features(tmp_path):
    X, names = build_digits(tmp_path)
    with served(open_digits(tmp_path)) as client:
        assert client.delete(f"/items/{names[0].replace('/', '%2F')}").json()["removed"] == 1
        replaced = {"items": [{"id": names[1], "features": X[2].tolist()}], "replace": True}
        assert client.post("/items", json=replaced).status_code == 201
        assert client.get("/items", params={"limit": 1}).json()["items"][0]["id"] == names[1]  # it keeps its place
    index = load_index(tmp_path / "digits.hgi")
    assert index.features.ids.tolist() == index.ids.tolist() == names[1:]
    assert index.features.of([names[1]]).tolist() == index.features.of([names[2]]).tolist()
    assert index.codes[0].tolist() == index.codes[1].tolist()


def test_metrics_count_requests_and_passes(numbers):
    client, _, _ = numbers
    for _ in range(3):
        search(client, codes=["00000000"])
    search(client, codes=["00"])
    text = client.get("/metrics").text
    assert 'hashgrove_requests_total{method="POST",route="/search",status="200"} 3' in text
    assert 'hashgrove_requests_total{method="POST",route="/search",status="422"} 1' in text
    assert "hashgrove_pass_queries_sum 3" in text
    assert "hashgrove_items 50" in text
    assert 'hashgrove_request_seconds_bucket{route="/search",le="+Inf"} 4' in text


def test_the_reference_needs_no_other_host(client):
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "POST /search" in page.text
    assert "<td>fields</td>" in page.text  # of the form that adds a picture
    assert not re.findall(r"(?:src|href)=['\"](?:/|[a-z]+:)", page.text)  # relative, as a proxy may add to the path
    assert re.findall(r"<script[^>]*>", page.text) == ["<script type='module' src='page/try.js'>"]
    assert client.get("/docs/style.css").headers["content-type"].startswith("text/css")
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) >= {"/search", "/encode", "/items", "/items/{id}", "/health", "/metrics", "/report"}
    names = {ref.rpartition("/")[2] for ref in re.findall(r"#/components/schemas/\w+", str(document))}
    assert names <= set(document["components"]["schemas"])


def test_the_page_and_its_files_are_served(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    files = set(re.findall(r"(?:src|href)=\"(page/[^\"]+)\"", page.text))
    assert files
    assert {client.get(file).status_code for file in files} == {200}
    assert error_of(client.get("/page/..%2Fapp.py"), 404)
    assert error_of(client.get("/page/nothing.js"), 404)
