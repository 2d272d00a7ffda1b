"""The loss passes what every loss passes."""

from mlcl.testing.losses import LossTestCase


class TestDice(LossTestCase):
    """The Dice loss passes what every loss passes."""

    names = ("dice",)

    def weights(self, labels, i):
        """2 |S & T| / (|S| + |T|), over the number of rows that share a label."""
        positives = [p for p in range(len(labels)) if p != i and labels[p] & labels[i]]
        return {
            p: 2 * len(labels[p] & labels[i]) / (len(labels[p]) + len(labels[i])) / len(positives)
            for p in positives
        }
