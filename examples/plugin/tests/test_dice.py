"""Tests that the loss passes the tests of every loss."""

from mlcl.testing.losses import LossTestCase


class TestDice(LossTestCase):
    """Tests that the Dice loss passes the tests of every loss."""

    names = ("dice",)

    def weights(self, labels, i):
        """Returns 2 |S & T| / (|S| + |T|) over the number of rows that share a label."""
        positives = [p for p in range(len(labels)) if p != i and labels[p] & labels[i]]
        return {
            p: 2 * len(labels[p] & labels[i]) / (len(labels[p]) + len(labels[i])) / len(positives)
            for p in positives
        }
