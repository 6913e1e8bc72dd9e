"""The learner BoostedTrees: parameters, the paper's configuration, and boosting from a start."""

from __future__ import annotations

import numpy as np
import pytest

from hashgrove import BoostedTrees
from tree_makers import problem


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_trees", 0), ("n_trees", 5000), ("n_trees", 2.5), ("max_depth", 0), ("features_per_node", 0),
        ("subset", "forest"),
        ("trimming", 1.0), ("trimming", -0.1), ("trimming", "a"), ("min_points", -1),
    ],
)  # fmt: skip
def test_values_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter must be"):
        BoostedTrees(**{name: value}).prepare(np.zeros((2, 2)), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"leaves": "real"}, "'leaves' parameter must be one of"),
        ({"learning_rate": 0}, "'learning_rate' parameter must be a number above 0 and below 10"),
        ({"regularisation": 1e10}, "'regularisation' parameter must be a number of at least 0 and below 1e"),
        ({"n_thresholds": 257}, "'n_thresholds' parameter must be an integer from 2 to 256 or None"),
        ({"min_hessian": np.inf}, "'min_hessian' parameter must be a number of at least 0"),
    ],
)
def test_messages_of_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        BoostedTrees(**parameters).prepare(np.zeros((2, 2)), np.random.default_rng(0))


def test_the_configuration_of_the_paper_does_not_depend_on_the_defaults():
    paper = BoostedTrees.paper()
    expected = {"leaves": "sign", "n_trees": 200, "max_depth": 4, "features_per_node": 200, "subset": "node"}
    expected |= {"trimming": 0.1, "min_points": 5, "early_stopping": False}
    assert paper.get_params().items() >= expected.items()
    assert (
        BoostedTrees.paper(n_trees=7, max_depth=6).get_params().items()
        >= (expected | {"n_trees": 7, "max_depth": 6}).items()
    )


LEARNERS = {leaves: BoostedTrees(n_trees=15, max_depth=3, leaves=leaves) for leaves in ("sign", "newton")}


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
class TestStart:
    def margins(self, learner, X, z, start, **parameters):
        rng = np.random.default_rng(0)
        data = learner.prepare(X, rng)
        encoder, unit = learner._boost(data.binned, np.asarray(z, np.int8), None, rng, start=start)
        encoder.check()
        return unit * encoder.scores_of_bins(data.binned.bins)[0]

    def test_trees_learn_what_the_start_leaves_open(self, learner):
        X, z, _ = problem(0, n=400)
        start = 3 * (X[:, 0] - 0.5)
        added = self.margins(learner, X, z, start)
        assert ((start + added > 0) == (z > 0)).mean() > ((start > 0) == (z > 0)).mean() + 0.1
        correlations = [
            abs(np.corrcoef(X[:, 0], margin)[0, 1]) for margin in (added, self.margins(learner, X, z, None))
        ]
        assert correlations[0] < correlations[1] - 0.1

    def test_a_start_of_zero_changes_nothing(self, learner):
        X, z, _ = problem(0)
        np.testing.assert_array_equal(self.margins(learner, X, z, np.zeros(80)), self.margins(learner, X, z, None))

    @pytest.mark.parametrize("certainty", [30.0, 1e6])
    def test_a_start_that_is_right_stays_right(self, learner, certainty):
        X, z, _ = problem(0)
        start = certainty * z
        assert ((start + self.margins(learner, X, z, start) > 0) == (z > 0)).all()

    def test_nothing_to_learn(self, learner):
        z = np.array([1, -1] * 20)
        added = self.margins(learner, np.ones((40, 2)), z, np.zeros(40))
        np.testing.assert_allclose(added, 0, atol=1e-6)

    def test_one_class(self, learner):
        X = problem(0)[0]
        start = X[:, 0] - 0.5
        assert (start + self.margins(learner, X, np.ones(80), start) > 0).all()
