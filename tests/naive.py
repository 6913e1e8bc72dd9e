"""Slow reference versions: a plain and obviously correct version of everything that a kernel does fast."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise, permutations, product

import numpy as np


def hamming(a, b):
    """Hamming distances between packed codes, one bit of one pair at a time."""
    out = np.zeros((len(a), len(b)), int)
    for i, x in enumerate(a.tolist()):
        for j, y in enumerate(b.tolist()):
            for p, q in zip(x, y, strict=True):
                out[i, j] += sum((p >> bit & 1) != (q >> bit & 1) for bit in range(8))
    return out


def nearest(distances, ids, k):
    """The k nearest items of one query, sorted by (distance, id): a list of distances and a list of ids."""
    ranked = sorted(zip(np.asarray(distances).tolist(), np.asarray(ids).tolist(), strict=True))[:k]
    return [d for d, _ in ranked], [i for _, i in ranked]


def search(codes, ids, queries, k):
    """The k nearest items of each query, sorted by (distance, id): one list of distances and one of ids per query."""
    found = [nearest(row, ids, k) for row in hamming(queries, codes)]
    return [distances for distances, _ in found], [near for _, near in found]


def search_radius(codes, ids, queries, radius):
    """All items at a distance of at most ``radius``, in the same order and form as in `search`."""
    distances, near = search(codes, ids, queries, len(codes))
    within = [sum(d <= radius for d in row) for row in distances]
    return (
        [row[:n] for row, n in zip(distances, within, strict=True)],
        [row[:n] for row, n in zip(near, within, strict=True)],
    )


def pairs_within(codes, ids, radius):
    """All pairs of items within a radius, as (distance, smaller id, larger id), sorted."""
    items, distances = sorted(zip(ids, range(len(ids)), strict=True)), hamming(codes, codes)
    return sorted(
        (int(distances[i, j]), a, b)
        for place, (a, i) in enumerate(items)
        for b, j in items[place + 1 :]
        if distances[i, j] <= radius
    )


def groups(codes, ids, radius):
    """Groups of items within a radius of each other, each grown from the free item with the most others around it.

    Items with equal codes join together: they count as one candidate.
    """
    ids = sorted(range(len(ids)), key=lambda i: ids[i]), ids
    order, names = ids
    kinds = {}
    for i in order:
        kinds.setdefault(bytes(codes[i]), []).append(i)
    first = [members[0] for members in kinds.values()]  # in the order of the smallest id of each code
    distance = hamming(codes, codes)
    members_of = dict(zip(first, kinds.values(), strict=True))

    def n_near(i):
        return sum(len(members_of[j]) for j in first if distance[i, j] <= radius)

    free, found = list(first), []
    for leader in sorted(first, key=lambda i: (-n_near(i), first.index(i))):
        if leader not in free:
            continue
        group = []
        for j in sorted(free, key=lambda j: (distance[leader, j], first.index(j))):
            if distance[leader, j] <= radius and all(distance[m, j] <= radius for m in group):
                group.append(j)
        free = [j for j in free if j not in group]
        found.append(sorted(names[i] for j in group for i in members_of[j]))
    return sorted((group for group in found if len(group) > 1), key=lambda group: (-len(group), group[0]))


def permuted(codes, bits):
    """Packed codes with their bits in another order: bit ``bits[i]`` comes to place i."""
    table = np.unpackbits(codes, axis=1, bitorder="little")
    return np.packbits(table[:, bits], axis=1, bitorder="little")


def buckets(codes, first, last):
    """The rows of codes by their bits ``first`` to ``last``, read as a number, in ascending order of both."""
    found = {}
    for row, bits in enumerate(np.unpackbits(codes, axis=1, bitorder="little")[:, first:last].tolist()):
        found.setdefault(sum(bit << place for place, bit in enumerate(bits)), []).append(row)
    return dict(sorted(found.items()))


def first_alive(numbers, starts, order, alive, firsts):
    """The first item of each code that is alive, where there is one."""
    firsts = list(firsts)
    for number in numbers:
        firsts[number] = min(
            [i for i in order[starts[number] : starts[number + 1]] if alive[i]], default=firsts[number]
        )
    return firsts


def numbered(codes):
    """The number of each code, in the order of the first items, and these first items."""
    numbers, firsts = {}, []
    for item, code in enumerate(codes):
        if code.tobytes() not in numbers:
            numbers[code.tobytes()] = len(firsts)
            firsts.append(item)
    return [numbers[code.tobytes()] for code in codes], firsts


def texts_at(data, ends):
    """The texts that end there, as bytes."""
    starts = [0, *ends[:-1].tolist()]
    return [bytes(data[start:end]) for start, end in zip(starts, ends.tolist(), strict=True)]


def compared_neighbours(texts):
    return [(a > b) - (a < b) for a, b in pairwise(texts)]


def found_texts(texts, wanted):
    """The last place of each wanted text among ascending ones, and whether it is there."""
    places = [bisect_right(texts, text) - 1 for text in wanted]
    return [max(place, 0) for place in places], [
        texts[place] == text for place, text in zip(places, wanted, strict=True)
    ]


def average_precision(relevant, *, depth=None, normalise="relevant"):
    """Average precision of one ranking, given as booleans from first to last; None if no item is relevant.

    With a depth only the first items count, and the sum is divided by all relevant items or by those among the first.
    """
    if not any(relevant):
        return None
    first = relevant[:depth]
    precisions = [sum(first[: i + 1]) / (i + 1) for i in range(len(first)) if first[i]]
    return sum(precisions) / max(1, sum(relevant if normalise == "relevant" else first))


def recall_at_ranks(relevant, depth):
    """Recall and precision of the first 1, 2, ... items of one ranking, given as booleans from first to last."""
    ranks = range(1, min(depth, len(relevant)) + 1)
    return [sum(relevant[:i]) / sum(relevant) for i in ranks], [sum(relevant[:i]) / i for i in ranks]


def tie_orders(distances, relevant):
    """All rankings (as booleans) that are sorted by distance: all permutations within all groups of ties."""
    groups = [
        list(permutations([bool(r) for x, r in zip(distances, relevant, strict=True) if x == d]))
        for d in sorted(set(distances))
    ]
    return [[r for group in choice for r in group] for choice in product(*groups)]


def precision_recall(distances, relevant):
    """Radii, recall and precision, pooled over all queries; both arguments have one list per query."""
    pairs = [(d, r) for row, marks in zip(distances, relevant, strict=True) for d, r in zip(row, marks, strict=True)]
    radii = range(min(d for d, _ in pairs), max(d for d, _ in pairs) + 1)
    found = [[r for d, r in pairs if d <= radius] for radius in radii]
    n_relevant = sum(r for _, r in pairs)
    return list(radii), [sum(f) / n_relevant for f in found], [sum(f) / len(f) for f in found]


def majority(classes):
    """The class with the most votes; ties go to the class that comes first."""
    return max(dict.fromkeys(classes), key=classes.count)


def expected_average_precision(distances, relevant):
    """Expected average precision over all orders of ties; for rankings that are too long for `tie_orders`."""
    total, place, hits = 0.0, 0, 0
    for d in sorted(set(distances)):
        group = [bool(r) for x, r in zip(distances, relevant, strict=True) if x == d]
        n, r = len(group), sum(group)
        for i in range(n):
            others = i * (r - 1) / (n - 1) if n > 1 else 0
            total += r / n * (hits + 1 + others) / (place + i + 1)
        place, hits = place + n, hits + r
    return total / hits if hits else None


def pair_matrix(affinity):
    """y_ij of an Affinity as a dense matrix of -1, 0 and +1."""
    Y = np.zeros((len(affinity), len(affinity)), int)
    for i in range(len(affinity)):
        Y[i, affinity.similar(i)] = 1
        Y[i, affinity.dissimilar(i)] = -1
    return Y


def coefficient_matrix(Y, bits, loss):
    """A of the next bit by definition: for each defined pair, the loss of equal values minus that of different values.

    ``bits`` holds -1 and +1, with one row for each bit so far.
    """
    n, r = len(Y), len(bits) + 1
    A = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if Y[i, j] != 0:
                codes_i, codes_j = list(bits[:, i]), list(bits[:, j])
                same, other = (
                    sum(a != b for a, b in zip([*codes_i, 1], [*codes_j, last], strict=True)) for last in (1, -1)
                )
                A[i, j] = loss(same, Y[i, j] > 0, r) - loss(other, Y[i, j] > 0, r)
    return A


def least(energy, n):
    """The smallest value of ``energy`` over all sign vectors of length n."""
    return min(energy(np.array(z)) for z in product([-1, 1], repeat=n))


def stump(bins, index, signed, features):
    """(gain, feature, threshold) of the stump with the least weighted error, found by trying all of them."""
    best = (-1, None, None)
    total = int(sum(int(s) for s in signed))
    for f in features:
        for threshold in range(255):
            left = sum(int(s) for i, s in zip(index, signed, strict=True) if bins[f, i] <= threshold)
            for polarity in (1, -1):
                # correct weight minus wrong weight of the stump that says polarity on the left, -polarity on the right
                gain = polarity * left - polarity * (total - left)
                if gain > best[0]:
                    best = (gain, int(f), threshold)
    return best


def tree_predictions(bins, index, signed, *, depth, min_points, columns):
    """Predictions (-1 or +1) for ``columns`` of a tree that tries every feature at every node, by recursion."""
    total = sum(int(s) for s in signed)
    positive = sum(int(s) > 0 for s in signed)
    leaf = 1 if total > 0 else -1
    if depth == 0 or min(positive, len(signed) - positive) <= min_points:
        return dict.fromkeys(columns, leaf)
    gain, feature, threshold = stump(bins, index, signed, range(len(bins)))
    if gain <= abs(total):
        return dict.fromkeys(columns, leaf)
    out = {}
    for side in (False, True):
        chosen = [t for t, i in enumerate(index) if (bins[feature, i] > threshold) == side]
        out |= tree_predictions(
            bins,
            [index[t] for t in chosen],
            [signed[t] for t in chosen],
            depth=depth - 1,
            min_points=min_points,
            columns=[c for c in columns if (bins[feature, c] > threshold) == side],
        )
    return out


def trimmed(w, trimming):
    """The heaviest examples that hold 1 - trimming of the weight, ranked by their weight rounded down to 6 bits."""
    mantissa, exponent = np.frexp(w)
    cut = np.ldexp(np.floor(mantissa * 64) / 64, exponent)
    for limit in sorted(set(cut.tolist()), reverse=True):
        kept = [i for i in range(len(w)) if cut[i] >= limit]
        if w[kept].sum(dtype=float) >= (1 - trimming) * w.sum(dtype=float):
            return kept
    return list(range(len(w)))


def adaboost(bins, y, *, n_trees, depth, min_points, trimming):
    """Margins of discrete AdaBoost on trees of `tree_predictions`, in float64."""
    n = len(y)
    w, margin = np.ones(n), np.zeros(n)
    for _ in range(n_trees):
        kept = trimmed(w.astype(np.float32), trimming)
        signed = np.rint(y[kept] * w[kept] / w[kept].sum() * 2**30).astype(int)
        leaves = tree_predictions(bins, kept, signed, depth=depth, min_points=min_points, columns=range(n))
        leaf = np.array([leaves[i] for i in range(n)])
        wrong, right = w[leaf != y].sum(), w[leaf == y].sum()
        alpha = 0.5 * np.log(right / max(wrong, n / (2 * n)))
        if alpha <= 0:
            continue
        w = w * np.exp(-alpha * y * leaf)
        w *= n / w.sum()
        margin += alpha * leaf
        if (margin * y > 0).all():
            break
    return margin


def newton_gain(gradients, curvatures, regularisation):
    """What examples gain as one leaf, G^2 / (H + regularisation)."""
    return gradients.sum() ** 2 / (curvatures.sum() + regularisation) if len(gradients) else 0.0


def newton_gains(bins, index, g, h, *, regularisation, min_hessian, n_thresholds=256):
    """The gain of each (threshold, feature), of those with enough curvature on both sides, by trying all of them."""
    found = {}
    step = 256 // n_thresholds
    for threshold, feature in product(range(step - 1, 255, step), range(len(bins))):
        left = bins[feature, index] <= threshold
        if min(h[left].sum(), h[~left].sum()) >= min_hessian:
            found[threshold, feature] = sum(newton_gain(g[side], h[side], regularisation) for side in (left, ~left))
    return found


def newton_step(g, h, regularisation):
    """The value of a leaf."""
    return float(np.clip(g.sum() / (h.sum() + regularisation), -4, 4)) if len(g) else 0.0


def newton_tree(bins, index, g, h, *, depth, columns, **rule):
    """Values for ``columns`` of a tree of Newton steps that tries every feature at every node, by recursion."""
    gains = newton_gains(bins, index, g, h, **rule) if depth else {}
    best = max(gains, key=gains.get, default=None)
    if best is None or gains[best] <= newton_gain(g, h, rule["regularisation"]) * (1 + 1e-9):
        return dict.fromkeys(columns, newton_step(g, h, rule["regularisation"]))
    threshold, feature = best
    out = {}
    for side in (False, True):
        chosen = (bins[feature, index] > threshold) == side
        there = [c for c in columns if (bins[feature, c] > threshold) == side]
        out |= newton_tree(bins, index[chosen], g[chosen], h[chosen], depth=depth - 1, columns=there, **rule)
    return out


def logistic_boosting(bins, y, w, *, n_trees, trimming, rate, **settings):
    """Half log-odds after boosting with `newton_tree`, in float64."""
    n = len(y)
    margin, w = np.zeros(n), w * n / w.sum()
    for _ in range(n_trees):
        p = 1 / (1 + np.exp(2 * y * margin))
        kept = np.array(trimmed((w * p).astype(np.float32), trimming) if trimming else range(n))
        g, h = (w * y * p)[kept], (2 * w * p * (1 - p))[kept]
        leaves = newton_tree(bins, kept, g, h, columns=range(n), **settings)
        margin += rate * np.array([leaves[i] for i in range(n)])
    return margin


def linear_scores(X, *, weights, bias, unit=0):
    """Scores of a Linear encoder, one dot product at a time, of rows that are scaled to length 1 first if ``unit``."""
    rows = [x / max(np.sqrt(sum(x**2)), 1e-300) for x in X] if unit else X
    return np.array([[sum(x * w) + b for w, b in zip(weights, bias, strict=True)] for x in rows])


def kernel_scores(X, *, support, weights, bias, gamma, low, scale):
    """Scores of a Kernel encoder: each feature is scaled, then one Gaussian at a time."""
    bumps = np.array([[np.exp(-gamma * sum(((x - low) * scale - s) ** 2)) for s in support] for x in X])
    return linear_scores(bumps, weights=weights, bias=bias)


def leaf_of(row, root, feature, threshold, child):
    """The leaf that a row of bins reaches in the tree that starts at node ``root``."""
    node = root
    while child[node]:
        node = root + int(child[node]) + int(row[feature[node]] > threshold[node])
    return node


def trees_scores(X, *, low, scale, bit_ptr, weights, tree_ptr, feature, threshold, child, value):
    """Scores of a Trees encoder: each row walks through each tree."""
    bins = np.clip((X - low) * scale + 0.5, 0, 255).astype(int)
    scores = np.zeros((len(X), len(bit_ptr) - 1))
    for (i, row), (b, (first, last)) in product(enumerate(bins), enumerate(pairwise(bit_ptr))):
        leaves = [leaf_of(row, int(tree_ptr[t]), feature, threshold, child) for t in range(first, last)]
        scores[i, b] = value[leaves].astype(int) @ weights[first:last].astype(int) / weights[first:last].sum()
    return scores


def leaf_trees_scores(X, *, low, scale, bit_ptr, unit, tree_ptr, feature, threshold, child, value):
    """Scores of a LeafTrees encoder: each row walks through each tree."""
    bins = np.clip((X - low) * scale + 0.5, 0, 255).astype(int)
    scores = np.zeros((len(X), len(bit_ptr) - 1))
    for (i, row), (b, (first, last)) in product(enumerate(bins), enumerate(pairwise(bit_ptr))):
        leaves = [leaf_of(row, int(tree_ptr[t]), feature, threshold, child) for t in range(first, last)]
        scores[i, b] = value[leaves].astype(int).sum()
    return scores * unit


def class_scores(X, *, weights, bias, book, offset, exclusive):
    """Scores of a ClassScores encoder, one row at a time."""
    out = []
    for decision in linear_scores(X, weights=weights, bias=bias):
        odds = np.exp(decision)
        out.append(sum((odds / odds.sum() if exclusive else odds / (1 + odds))[:, None] * book) + offset)
    return np.array(out)


def posterior_scores(X, *, weights, bias, power, exclusive, book, offset):
    """Scores of a Posterior encoder, one row at a time."""
    out = []
    for logits in linear_scores(X, weights=weights, bias=bias, unit=1):
        odds = np.exp(logits)
        phi = (odds / odds.sum() if exclusive else odds / (1 + odds)) ** power
        out.append([sum(phi / np.sqrt(sum(phi**2)) * b) + o for b, o in zip(book, offset, strict=True)])
    return np.array(out)


def decodable_scores(X, *, weights, bias, words, table, offset, temperature, names):
    """Scores of a Decodable encoder: the cross-entropy of every candidate code is computed anew."""
    out = []
    for logits in linear_scores(X, weights=weights, bias=bias, unit=1):
        p = np.exp(logits) / np.exp(logits).sum()

        def cost(bits, p=p):
            z = bits @ table.astype(float) + offset
            return np.log(np.exp(z).sum()) - p @ z

        bits = np.where(words @ np.sqrt(p) > 0, 1, -1)
        while True:
            flipped = [np.where(np.arange(len(bits)) == j, -bits, bits) for j in range(len(bits))]
            costs = np.array([cost(other) for other in flipped])
            if costs.min() > cost(bits) - 1e-6:
                break
            bits = flipped[int(costs.argmin())]
        out.append(bits * np.maximum(costs - cost(bits), 1e-7))
    return np.array(out)


def decode(bits, *, table, offset, temperature):
    """Class probabilities of rows of bits."""
    logits = [temperature * (np.where(row, 1, -1) @ table.astype(float) + offset) for row in bits]
    return np.array([np.exp(z) / np.exp(z).sum() for z in logits])


def unit_kernel_scores(X, *, anchors, gamma):
    """Scores of a UnitKernel encoder: Gaussians around anchors, for rows that are scaled to length 1 first."""
    rows = [x / max(np.sqrt(sum(x**2)), 1e-300) for x in X]
    return np.array([[np.exp(-gamma * sum((x - a) ** 2)) for a in anchors] for x in rows])


def _scores_of_parts(arrays):
    """For each part of a composite, by name, a function from rows to its scores."""
    parts = {}
    for name, array in arrays.items():
        if "." in name:
            part, kind, field = name.split(".", 2)
            parts.setdefault(part, (kind, {}))[1][field] = array
    return {part: lambda X, k=kind, f=fields: ENCODER_SCORES[k](X, **f) for part, (kind, fields) in parts.items()}


def lifted_scores(X, **arrays):
    """Scores of a Lifted encoder: those of the bits for the scores of the lift."""
    parts = _scores_of_parts(arrays)
    return parts["bits"](parts["lift"](X))


def spread_scores(X, **arrays):
    """Scores of a Spread encoder: bit r is generic if floor(r g / n) grows after it, for g generic bits of n."""
    parts = _scores_of_parts(arrays)
    learned, generic = (parts[part](X).T.tolist() for part in ("learned", "generic"))
    n, g = len(learned) + len(generic), len(generic)
    columns = [(generic if (r + 1) * g // n > r * g // n else learned).pop(0) for r in range(n)]
    return np.array(columns).T


def sum_scores(X, **arrays):
    """Scores of a Sum encoder."""
    return sum(scores(X) for scores in _scores_of_parts(arrays).values())


def mixed_scores(X, *, source, **arrays):
    """Scores of a Mixed encoder, one bit after the other, each the next one of its part."""
    columns = {part: iter(scores(X).T) for part, scores in _scores_of_parts(arrays).items()}
    return np.stack([next(columns[str(part)]) for part in source], axis=1)


ENCODER_SCORES = {
    "linear": linear_scores,
    "kernel": kernel_scores,
    "trees": trees_scores,
    "leaf-trees": leaf_trees_scores,
    "class-scores": class_scores,
    "lifted": lifted_scores,
    "posterior": posterior_scores,
    "unit-kernel": unit_kernel_scores,
    "decodable": decodable_scores,
    "sum": sum_scores,
    "mixed": mixed_scores,
    "spread": spread_scores,
}


def itq(X, rotation, *, n_iter):
    """Scores and errors of iterative quantisation. The largest entry of each principal axis is positive."""
    centred = X - X.mean(axis=0)
    axes = np.linalg.svd(centred)[2][: len(rotation)]
    axes = np.array([axis * np.sign(axis[np.argmax(np.abs(axis))]) for axis in axes])
    projected, errors = centred @ axes.T, []
    for _ in range(n_iter):
        signs = np.where(projected @ rotation > 0, 1.0, -1.0)
        left, _, right = np.linalg.svd(signs.T @ projected)
        rotation = right.T @ left.T
        rotated = projected @ rotation
        errors.append(np.mean(np.sum((np.where(rotated > 0, 1.0, -1.0) - rotated) ** 2, axis=1)))
    return projected @ rotation, np.array(errors)


def normalised_patches(image, patch_size, stride):
    """All patches of an image (height, width, channels), minus their mean, divided by sqrt(variance + 10)."""
    height, width, _ = image.shape
    rows = []
    for top in range(0, height - patch_size + 1, stride):
        for left in range(0, width - patch_size + 1, stride):
            patch = image[top : top + patch_size, left : left + patch_size].astype(float).ravel()
            rows.append((patch - patch.mean()) / np.sqrt(patch.var(ddof=1) + 10))
    return np.array(rows)


def matching_pursuit(signal, atoms, sparsity):
    """Orthogonal matching pursuit: the chosen atoms, in order, and their least-squares weights."""
    chosen, weights, left = [], np.zeros(0), signal.astype(float)
    for _ in range(sparsity):
        chosen.append(int(np.abs(atoms @ left).argmax()))
        weights = np.linalg.lstsq(atoms[chosen].T.astype(float), signal.astype(float), rcond=None)[0]
        left = signal - weights @ atoms[chosen]
    return chosen, weights


def update_atoms(atoms, signals, codes):
    """One K-SVD pass over the atoms, one power step each, on dense codes (signals, atoms); returns new arrays."""
    atoms, codes = atoms.astype(float), codes.astype(float)
    for j in range(len(atoms)):
        users = np.flatnonzero(codes[:, j])
        without = np.delete(np.arange(len(atoms)), j)
        error = signals[users] - codes[np.ix_(users, without)] @ atoms[without]
        direction = error.T @ codes[users, j]
        if len(users) and np.linalg.norm(direction) > 1e-6:
            atoms[j] = direction / np.linalg.norm(direction)
            codes[users, j] = error @ atoms[j]
    return atoms, codes


def spherical_step(atoms, signals):
    """One iteration of spherical k-means: each atom plus its signals times their correlations, normalised."""
    total = atoms.astype(float)
    for signal in signals.astype(float):
        scores = atoms @ signal
        best = np.abs(scores).argmax()
        total[best] += scores[best] * signal
    return total / np.linalg.norm(total, axis=1, keepdims=True)


def pooled(scores, threshold, encoding, pooling, levels):
    """Soft-thresholded ``scores`` (rows, columns, atoms), pooled over the cells of each grid in ``levels``."""
    codes = {
        "positive": np.maximum(scores - threshold, 0),
        "absolute": np.maximum(np.abs(scores) - threshold, 0),
        "split": np.maximum(np.concatenate([scores, -scores], axis=2) - threshold, 0),
    }[encoding]
    n_rows, n_columns, _ = scores.shape
    out = []
    for level in levels:
        down = [int(np.floor(n_rows * i / level + 0.5)) for i in range(level + 1)]
        across = [int(np.floor(n_columns * i / level + 0.5)) for i in range(level + 1)]
        for i in range(level):
            for j in range(level):
                region = codes[down[i] : down[i + 1], across[j] : across[j + 1]]
                out.append(region.mean(axis=(0, 1)) if pooling == "mean" else region.max(axis=(0, 1)))
    return np.concatenate(out)


def gist(image, *, orientations, n_cells, prefilter):
    """GIST of one image (h, w) or (h, w, 3) as in LMgist.m, in float64, one filter after the other.

    A colour image gives the values of its three channels one after the other. The channels share their range and
    contrast.
    """
    image = np.asarray(image, float)
    image = image.reshape(*image.shape[:2], -1)
    image = image - image.min()
    image = 255 * image / image.max() if image.max() > 0 else image
    image = _gist_prefilter(image, prefilter)
    values = []
    for channel in range(image.shape[2]):
        padded = np.pad(image[:, :, channel], 32, mode="symmetric")
        spectrum = np.fft.fft2(padded)
        for scale, count in enumerate(orientations):
            for number in range(count):
                response = np.abs(np.fft.ifft2(spectrum * _gabor(padded.shape, scale, count, number)))
                values += _cell_means(response[32:-32, 32:-32], n_cells)
    return np.array(values)


def _gist_prefilter(image, cycles):
    image = np.pad(np.log(image + 1), ((5, 5), (5, 5), (0, 0)), mode="symmetric")
    height, width, _ = image.shape
    n = max(height, width) + max(height, width) % 2
    image = np.pad(image, ((0, n - height), (0, n - width), (0, 0)), mode="symmetric")
    x, y = np.meshgrid(np.arange(-n / 2, n / 2), np.arange(-n / 2, n / 2))
    low = np.fft.fftshift(np.exp(-(x**2 + y**2) / (cycles / np.sqrt(np.log(2))) ** 2))[:, :, None]
    image = image - np.fft.ifft2(np.fft.fft2(image, axes=(0, 1)) * low, axes=(0, 1)).real
    power = image.mean(axis=2, keepdims=True) ** 2
    contrast = np.sqrt(np.abs(np.fft.ifft2(np.fft.fft2(power, axes=(0, 1)) * low, axes=(0, 1))))
    return (image / (0.2 + contrast))[5 : height - 5, 5 : width - 5]


def _gabor(shape, scale, count, number):
    height, width = shape
    x, y = np.meshgrid(np.arange(-width / 2, width / 2), np.arange(-height / 2, height / 2))
    radius, angle = np.fft.fftshift(np.sqrt(x**2 + y**2)), np.fft.fftshift(np.angle(x + 1j * y))
    angle = angle + np.pi / count * number
    angle = angle + 2 * np.pi * (angle < -np.pi) - 2 * np.pi * (angle > np.pi)
    frequency, sharpness = 0.3 / 1.85**scale, 16 * count**2 / 32**2
    return np.exp(-10 * 0.35 * (radius / width / frequency - 1) ** 2 - 2 * sharpness * np.pi * angle**2)


def _cell_means(response, n_cells):
    rows, columns = (np.fix(np.linspace(0, side, n_cells + 1)).astype(int) for side in response.shape)
    return [
        response[rows[i] : rows[i + 1], columns[j] : columns[j + 1]].mean()
        for i in range(n_cells)
        for j in range(n_cells)
    ]


def gradient(function, point, step=1e-6):
    """The gradient of ``function`` at ``point``, by central differences."""
    out = []
    for axis in np.eye(len(point)):
        out.append((function(point + step * axis) - function(point - step * axis)) / (2 * step))
    return np.array(out)


def weighted_distances(query, weights, codes):
    """The sum of the weights of the bits in which packed ``codes`` differ from a packed query."""
    bits = np.unpackbits(codes, axis=1, bitorder="little")[:, : len(weights)]
    query_bits = np.unpackbits(query[None], axis=1, bitorder="little")[0, : len(weights)]
    return ((bits != query_bits) * weights).sum(axis=1)


def scaled_rows(X, low, span):
    """The rows (x - low) / span in float64, each with a 1 at its end."""
    return np.array([[*((row.astype(np.float64) - low) / span), 1.0] for row in X])


def squared_hinge(X, z, weights, intercept, *, C):
    """The objective of a linear SVM, row by row. The intercept is penalised like the other weights."""
    value = (sum(w * w for w in weights) + intercept**2) / 2
    for row, sign in zip(X.tolist(), z.tolist(), strict=True):
        value += C * max(0.0, 1 - sign * (sum(w * x for w, x in zip(weights, row, strict=True)) + intercept)) ** 2
    return value


def ridge(X, targets, *, weights, penalty):
    """Weights and intercept of ridge regression, by least squares on rows that stand for the penalty."""
    n, d = X.shape
    root = np.sqrt(weights)[:, None]
    rows = np.vstack(
        [np.hstack([X, np.ones((n, 1))]) * root, np.hstack([np.sqrt(penalty) * np.eye(d), np.zeros((d, 1))])]
    )
    found = np.linalg.lstsq(rows, np.vstack([targets * root, np.zeros((d, targets.shape[1]))]), rcond=None)[0]
    return found[:-1], found[-1]


def left_out_predictions(X, targets, *, weights, penalty):
    """What each row gets from a ridge regression of all other rows; weights have mean 1 over all rows."""
    n = len(X)
    weights = np.ones(n) if weights is None else weights * n / weights.sum()
    out = np.empty(targets.shape)
    for i in range(n):
        others = np.arange(n) != i
        w, b = ridge(X[others], targets[others], weights=weights[others], penalty=penalty)
        out[i] = X[i] @ w + b
    return out


def near_rows(Z, *, n_neighbours):
    """The weights of near rows, pair by pair: cubes of cosines, divided by the roots of the sums of both rows."""
    n = len(Z)
    cosines = Z.astype(np.float64) @ Z.T.astype(np.float64)
    weights = np.zeros((n, n))
    for i in range(n):
        for j in sorted((j for j in range(n) if j != i), key=lambda j: -cosines[i, j])[:n_neighbours]:
            weights[i, j] = weights[j, i] = max(cosines[i, j], 0) ** 3
    sums = weights.sum(axis=1)
    return np.array(
        [[w / np.sqrt(sums[i] * sums[j]) if w else 0.0 for j, w in enumerate(row)] for i, row in enumerate(weights)]
    )


def cross_entropy(logits, labels):
    """Mean of -log of the probability of the right class, row by row."""
    p = [np.exp(row - max(row)) / sum(np.exp(row - max(row))) for row in logits]
    return -np.mean([np.log(row[label > 0][0]) for row, label in zip(p, labels, strict=True)])


def logistic_loss(margins, targets):
    """Mean cross-entropy of sigmoid(margins) with targets between 0 and 1, row by row."""
    return np.mean(
        [t * np.logaddexp(0, -m) + (1 - t) * np.logaddexp(0, m) for m, t in zip(margins, targets, strict=True)]
    )


def vector_measures(database, queries, y_query, y_database, *, metric, k, relevant, exclude_self=False):
    """MAP and precision@k when each query ranks the items by their vectors, one pair at a time.

    ``relevant(a, b)`` says whether items with these labels match. Queries without a relevant item do not count.
    """
    mean = database.mean(axis=0) if metric == "cosine" else 0 * database[0]
    averages, precisions = [], []
    for q, (query, label) in enumerate(zip(queries - mean, y_query, strict=True)):
        ranked = []
        for i, item in enumerate(database - mean):
            if exclude_self and i == q:
                continue
            if metric == "cosine":
                lengths = np.sqrt(sum(item**2)) * np.sqrt(sum(query**2))
                distance = -sum(item * query) / lengths if lengths > 0 else 0.0
            else:
                distance = np.sqrt(sum((item - query) ** 2)) if metric == "euclidean" else -sum(item * query)
            ranked.append((distance, i))
        marks = [bool(relevant(label, y_database[i])) for _, i in sorted(ranked)]
        if any(marks):
            averages.append(average_precision(marks))
            precisions.append(sum(marks[:k]) / min(k, len(marks)))
    return np.mean(averages), np.mean(precisions)


def both_ways(similar, dissimilar, n):
    """The neighbours of each point, (similar, dissimilar), if pairs (i, j) that were drawn count for both points."""
    found = [(set(), set()) for _ in range(n)]
    for kind, pairs in enumerate((similar, dissimilar)):
        for i, j in pairs:
            found[i][kind].add(j)
            found[j][kind].add(i)
    return [(sorted(similar), sorted(dissimilar)) for similar, dissimilar in found]
