"""Tests of the experiments, their data sets and the methods of the paper that only they use."""
