"""Turn a `Trees` encoder into a model of LightGBM, XGBoost or ONNX: the same trees, and one output per bit.

In hashgrove a row goes left if level <= threshold, which means x < low + (threshold + 0.5) / scale; the other formats
compare feature values. A bit is set if its output is positive. The value of a leaf there is the weight of the tree
times the value of the leaf here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Trees


class Nodes(NamedTuple):
    """One tree that compares feature values: nodes in our order, number of the left child, 0 for a leaf."""

    bit: int
    feature: NDArray[np.int64]
    limit: NDArray[np.float64]  # a row goes left if x < limit
    left: NDArray[np.int64]
    leaf: NDArray[np.float64]  # weight x leaf; 0 in an inner node


def trees_of(encoder: Trees) -> Iterator[Nodes]:
    """Go through the trees of all bits in rounds, one tree per bit, the order of boosters with several outputs."""
    counts = np.diff(encoder.bit_ptr)
    for turn in range(counts.max()):
        for bit in np.flatnonzero(counts > turn):
            tree = encoder.bit_ptr[bit] + turn
            part = slice(encoder.tree_ptr[tree], encoder.tree_ptr[tree + 1])
            feature = encoder.feature[part].astype(np.int64)
            with np.errstate(divide="ignore"):  # a constant feature always has level 0, so its rows go left
                limit = encoder.low[feature] + (encoder.threshold[part] + 0.5) / encoder.scale[feature]
            leaf = encoder.value[part] * np.float64(encoder.weights[tree])
            yield Nodes(int(bit), feature, limit, encoder.child[part].astype(np.int64), leaf)


def as_float32(limit: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the smallest float32 not below ``limit``, so that x < limit stays the same for every float32 x."""
    rounded = limit.astype(np.float32)
    return np.where(rounded < limit, np.nextafter(rounded, np.float32(np.inf)), rounded)


def to_lightgbm(encoder: Trees) -> str:
    """Return a model in LightGBM's text format; all bits must have the same number of trees."""
    parts = [
        "tree\nversion=v4",
        f"num_class={encoder.n_bits}\nnum_tree_per_iteration={encoder.n_bits}",
        f"label_index=0\nmax_feature_idx={encoder.n_features - 1}\nobjective=multiclass num_class:{encoder.n_bits}",
        "feature_names=" + " ".join(f"f{j}" for j in range(encoder.n_features)),
        "feature_infos=" + " ".join(["[-1e30:1e30]"] * encoder.n_features),
        "",
    ]
    for number, tree in enumerate(trees_of(encoder)):
        inner = tree.left > 0
        number_of = np.where(inner, np.cumsum(inner) - 1, -np.cumsum(~inner))  # inner nodes from 0, leaves from -1 down
        left, n_leaves = tree.left[inner], int((~inner).sum())
        at_most = np.nextafter(tree.limit[inner], -np.inf)  # LightGBM goes left if x <= threshold
        tables = {
            "split_feature": tree.feature[inner],
            "split_gain": np.ones(len(left), np.int64),
            "threshold": at_most,
            "decision_type": np.full(len(left), 2),
            "left_child": number_of[left],
            "right_child": number_of[left + 1],
            "leaf_value": tree.leaf[~inner],
        }
        lines = [f"{name}={' '.join(map(repr, table.tolist()))}" for name, table in tables.items()]
        parts.append(f"Tree={number}\nnum_leaves={n_leaves}\nnum_cat=0\n" + "\n".join(lines) + "\nshrinkage=1\n\n")
    return "\n".join(parts) + "\nend of trees\n"


def to_xgboost(encoder: Trees) -> bytes:
    """Return a model in XGBoost's JSON format."""
    trees, bits = [], []
    for number, tree in enumerate(trees_of(encoder)):
        inner, n = tree.left > 0, len(tree.left)
        parents = np.full(n, 2**31 - 1)
        parents[tree.left[inner]] = parents[tree.left[inner] + 1] = np.flatnonzero(inner)
        trees.append(
            {
                "base_weights": [0.0] * n,
                "categories": [],
                "categories_nodes": [],
                "categories_segments": [],
                "categories_sizes": [],
                "default_left": [0] * n,
                "id": number,
                "left_children": np.where(inner, tree.left, -1).tolist(),
                "right_children": np.where(inner, tree.left + 1, -1).tolist(),
                "loss_changes": [0.0] * n,
                "parents": parents.tolist(),
                "split_conditions": np.where(inner, as_float32(tree.limit).astype(np.float64), tree.leaf).tolist(),
                "split_indices": tree.feature.tolist(),
                "split_type": [0] * n,
                "sum_hessian": [1.0] * n,
                "tree_param": {
                    "num_deleted": "0",
                    "num_feature": str(encoder.n_features),
                    "num_nodes": str(n),
                    "size_leaf_vector": "1",
                },
            }
        )
        bits.append(tree.bit)
    n_bits = str(encoder.n_bits)
    model = {
        "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": list(range(0, len(trees) + 1, encoder.n_bits)),
        "tree_info": bits,
        "trees": trees,
    }
    learner = {
        "attributes": {},
        "feature_names": [],
        "feature_types": [],
        "gradient_booster": {"model": model, "name": "gbtree"},
        "learner_model_param": {
            "base_score": "[" + ",".join(["0E0"] * encoder.n_bits) + "]",
            "boost_from_average": "0",
            "num_class": n_bits,
            "num_feature": str(encoder.n_features),
            "num_target": "1",
        },
        "objective": {"name": "multi:softprob", "softmax_multiclass_param": {"num_class": n_bits}},
    }
    return json.dumps({"learner": learner, "version": [3, 2, 0]}).encode()


def to_onnx(encoder: Trees) -> bytes:
    """Return an ONNX graph of one TreeEnsembleRegressor from x, float32 (n, n_features), to scores (n, n_bits)."""
    from onnx import TensorProto, helper

    columns: dict[str, list[Any]] = {name: [] for name in ("tree", "node", "feature", "limit", "mode", "left", "right")}
    leaves: dict[str, list[Any]] = {name: [] for name in ("tree", "node", "bit", "weight")}
    for number, tree in enumerate(trees_of(encoder)):
        inner, nodes = tree.left > 0, np.arange(len(tree.left))
        columns["tree"] += [number] * len(nodes)
        columns["node"] += nodes.tolist()
        columns["feature"] += np.where(inner, tree.feature, 0).tolist()
        columns["limit"] += np.where(inner, as_float32(tree.limit), 0).tolist()
        columns["mode"] += np.where(inner, "BRANCH_LT", "LEAF").tolist()
        columns["left"] += np.where(inner, tree.left, 0).tolist()
        columns["right"] += np.where(inner, tree.left + 1, 0).tolist()
        leaves["tree"] += [number] * int((~inner).sum())
        leaves["node"] += nodes[~inner].tolist()
        leaves["bit"] += [tree.bit] * int((~inner).sum())
        leaves["weight"] += tree.leaf[~inner].tolist()
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["scores"],
        domain="ai.onnx.ml",
        n_targets=encoder.n_bits,
        aggregate_function="SUM",
        post_transform="NONE",
        nodes_treeids=columns["tree"],
        nodes_nodeids=columns["node"],
        nodes_featureids=columns["feature"],
        nodes_values=columns["limit"],
        nodes_modes=columns["mode"],
        nodes_truenodeids=columns["left"],
        nodes_falsenodeids=columns["right"],
        target_treeids=leaves["tree"],
        target_nodeids=leaves["node"],
        target_ids=leaves["bit"],
        target_weights=leaves["weight"],
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, encoder.n_features])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, encoder.n_bits])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(
        helper.make_graph([node], "trees", [x], [scores]), opset_imports=opsets, ir_version=8
    ).SerializeToString()
