"""Boosted decision trees on binned features (section 4.1 of the paper): from the values of a bit to its trees.

The room knows arrays only; it imports nothing of the package but ``runtime``. In the order in which a tree is made:

- `hashgrove.trees.binning`: the values of a feature become one byte each.
- `hashgrove.trees.histogram`: the open nodes of a level, and the sums of their examples' values in each bin.
- `hashgrove.trees.splitting`: the best split of each node, for sign leaves and for Newton leaves.
- `hashgrove.trees.grower`: one tree, level by level.
- `hashgrove.trees.adaboost`, `hashgrove.trees.logistic`: the two boosters, which grow the trees of one bit;
  `hashgrove.trees.boosting`: their settings, their memory, and weight trimming. All rounds of a bit are one call of
  compiled code, on one thread; bits that do not depend on each other are learned on several threads.
- `hashgrove.trees.prediction`: sums over the trees of each bit, for training rows and for encoding.

`hashgrove.functions.BoostedTrees` is the learner that users see; the encoders are in `hashgrove.encoders.trees`.
"""
