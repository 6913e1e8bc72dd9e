"""A `Trees` encoder as a model of LightGBM, XGBoost or ONNX: the same trees, one output a bit, bit = output > 0.

Here a row goes left where level <= threshold, which is x < low + (threshold + 0.5) / scale; the others compare feature
values. Weight x leaf of a tree is its leaf value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Trees


class Nodes(NamedTuple):
    """One tree in feature space: nodes in our order, children by their number, 0 in a leaf."""

    bit: int
    feature: NDArray[np.int64]
    limit: NDArray[np.float64]  # left where x < limit
    left: NDArray[np.int64]
    leaf: NDArray[np.float64]  # weight x leaf; 0 in an inner node


def trees_of(encoder: Trees) -> Iterator[Nodes]:
    """The trees of all bits, one tree of each bit after the other, as boosters with many outputs have them."""
    counts = np.diff(encoder.bit_ptr)
    for turn in range(counts.max()):
        for bit in np.flatnonzero(counts > turn):
            tree = encoder.bit_ptr[bit] + turn
            part = slice(encoder.tree_ptr[tree], encoder.tree_ptr[tree + 1])
            feature = encoder.feature[part].astype(np.int64)
            with np.errstate(divide="ignore"):  # a constant feature is level 0: always left
                limit = encoder.low[feature] + (encoder.threshold[part] + 0.5) / encoder.scale[feature]
            leaf = encoder.value[part] * np.float64(encoder.weights[tree])
            yield Nodes(int(bit), feature, limit, encoder.child[part].astype(np.int64), leaf)


def as_float32(limit: NDArray[np.float64]) -> NDArray[np.float32]:
    """The smallest float32 that is not below: x < limit stays the same for every float32 x."""
    rounded = limit.astype(np.float32)
    return np.where(rounded < limit, np.nextafter(rounded, np.float32(np.inf)), rounded)


def to_lightgbm(encoder: Trees) -> str:
    """LightGBM's model text; all bits must have the same number of trees."""
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
        own = np.where(inner, np.cumsum(inner) - 1, -1 * np.cumsum(~inner))  # inner nodes from 0, leaves from -1 down
        left, n_leaves = tree.left[inner], int((~inner).sum())
        at_most = np.nextafter(tree.limit[inner], -np.inf)  # LightGBM goes left where x <= threshold
        tables = {
            "split_feature": tree.feature[inner],
            "split_gain": np.ones(len(left), np.int64),
            "threshold": at_most,
            "decision_type": np.full(len(left), 2),
            "left_child": own[left],
            "right_child": own[left + 1],
            "leaf_value": tree.leaf[~inner],
        }
        lines = [f"{name}={' '.join(map(repr, table.tolist()))}" for name, table in tables.items()]
        parts.append(f"Tree={number}\nnum_leaves={n_leaves}\nnum_cat=0\n" + "\n".join(lines) + "\nshrinkage=1\n\n")
    return "\n".join(parts) + "\nend of trees\n"


def to_xgboost(encoder: Trees) -> bytes:
    """XGBoost's JSON model."""
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
    """An ONNX graph of one TreeEnsembleRegressor: input x, float32 (n, n_features); output scores (n, n_bits)."""
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
