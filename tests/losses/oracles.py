"""Slow versions of every loss: loops over rows and label sets, written from the equations.

No code is shared with mlcl.losses. Rows are lists of floats, label sets are frozensets, classes and samples
are integers, ratings are lists of numbers, paths are tuples of integers, coarse first, or frozensets of such
paths. Each oracle returns the list of the anchors' terms L_i, except `mulsupcon`, which returns the value of
the whole batch, since its equation has no terms.
"""

import math

from mlcl.losses import LOSSES
from mlcl.testing.loss_batches import cases_of
from mlcl.testing.losses import log_probability, similarity


def weighted(z, i, factors, divisor, tau, kind="dot"):
    """Returns -sum_p K_ip log p_ip / n_i, or 0 if n_i is 0."""
    total = math.fsum(factor * log_probability(z, i, p, tau, kind) for p, factor in factors.items())
    return -total / divisor if divisor else 0.0


def mean_over(z, i, positives, tau):
    return weighted(z, i, dict.fromkeys(positives, 1), len(positives), tau)


def equal(labels, i):
    return [p for p in range(len(labels)) if p != i and labels[p] == labels[i]]


def simclr(z, samples, tau):
    return [mean_over(z, i, equal(samples, i), tau) for i in range(len(z))]


def supcon(z, classes, tau):
    return [mean_over(z, i, equal(classes, i) if classes[i] != -1 else [], tau) for i in range(len(z))]


def all_(z, sets, tau, empty_match=True):
    return [mean_over(z, i, equal(sets, i) if sets[i] or empty_match else [], tau) for i in range(len(z))]


def any_positives(sets, i):
    return [p for p in range(len(sets)) if p != i and len(sets[p] & sets[i]) > 0]


def any_(z, sets, tau):
    return [mean_over(z, i, any_positives(sets, i), tau) for i in range(len(z))]


def mulsupcon(z, sets, tau, normalization="paper"):
    rows = range(len(z))
    terms = []
    valid_count = 0
    for i in rows:
        total = 0.0
        for label in sets[i]:
            positives = [p for p in rows if p != i and label in sets[p]]
            if positives:
                valid_count += 1
                total += mean_over(z, i, positives, tau)
        terms.append(total)
    if normalization == "per_sample":
        return math.fsum(terms[i] / len(sets[i]) for i in rows if sets[i]) / len(z)
    divisor = sum(len(s) for s in sets) if normalization == "paper" else valid_count
    return math.fsum(terms) / divisor if divisor else 0.0


def factor(s, t, penalty="inverse", rate=None, factors="both"):
    shared_count = len(s & t)
    if shared_count == 0:
        return 0.0
    extra_count = len(t - (s & t))
    decay = 1 / (1 + extra_count) if penalty == "inverse" else math.exp(-rate * extra_count)
    return {
        "both": shared_count / len(s) * decay,
        "similarity": shared_count / len(s),
        "dissimilarity": decay,
    }[factors]


def simdis(
    z, sets, tau, form="weighted", penalty="inverse", rate=None, normalizer="positives", factors="both"
):
    terms = []
    for i in range(len(z)):
        positive_rows = any_positives(sets, i)
        ks = {p: factor(sets[i], sets[p], penalty, rate, factors) for p in positive_rows}
        if form == "printed" and ks:
            # log(K p) is computed in two parts, since p underflows at a small tau.
            constant = math.fsum(map(math.log, ks.values())) / len(ks)
            terms.append(mean_over(z, i, ks, tau) - constant)
        else:
            divisor = len(ks) if normalizer == "positives" else math.fsum(ks.values())
            terms.append(weighted(z, i, ks, divisor, tau))
    return terms


def jaccard_similarity(a, b):
    numerator = denominator = 0
    for x, y in zip(a, b, strict=True):
        numerator += min(x, y)
        denominator += max(x, y)
    return numerator / denominator if denominator else 0.0


def jaccard(z, ratings, tau, threshold=0.5, strict=True):
    terms = []
    for i in range(len(z)):
        similarities = {p: jaccard_similarity(ratings[i], ratings[p]) for p in range(len(z)) if p != i}
        positives = {
            p: s for p, s in similarities.items() if s > threshold or (s == threshold and not strict)
        }
        terms.append(weighted(z, i, positives, len(positives), tau))
    return terms


def knn(z, sets, tau, dynamic=True):
    terms = []
    for i in range(len(z)):
        shared_counts = {p: len(sets[i] & sets[p]) for p in any_positives(sets, i)}
        shared_counts = shared_counts if dynamic else dict.fromkeys(shared_counts, 1)
        terms.append(weighted(z, i, shared_counts, sum(shared_counts.values()), tau, "euclidean"))
    return terms


def shared_levels(a, b):
    """Returns how many levels two paths, or any two of two sets, share from the root on; -1 equals none."""
    if isinstance(a, frozenset):
        return max((shared_levels(path, other) for path in a for other in b), default=0)
    depth = 0
    while depth < len(a) and a[depth] == b[depth] >= 0:
        depth += 1
    return depth


def equal_levels(a, b):
    """Returns how many levels from the root on have equal, non-empty sets of classes in two sets of paths."""
    if not isinstance(a, frozenset):
        return shared_levels(a, b)
    depth = 0
    while (nodes := nodes_of(a, depth + 1)) and nodes == nodes_of(b, depth + 1):
        depth += 1
    return depth


def nodes_of(row, levels):
    return {path[:levels] for path in row if len(path) >= levels and -1 not in path[:levels]}


def level_positives(paths, i, level, exclusive=False, positives="overlapping"):
    count = {"overlapping": shared_levels, "equal": equal_levels}[positives]
    depths = {p: count(paths[i], paths[p]) for p in range(len(paths)) if p != i}
    if exclusive:
        return [p for p, depth in depths.items() if depth == level + 1]
    return [p for p, depth in depths.items() if depth > level]


def level_weight(weights, level, levels):
    if weights == "exp":
        return math.exp(1 / (levels - level))
    return 1.0 if weights == "uniform" else weights[level]


def levels_of(paths):
    return max(len(path) for row in paths for path in (row if isinstance(row, frozenset) else [row]))


def himulcon(z, paths, tau, level_weights="exp", exclusive=False, positives="overlapping"):
    levels = levels_of(paths)
    terms = []
    for i in range(len(z)):
        total = 0.0
        for level in range(levels):
            mean = mean_over(z, i, level_positives(paths, i, level, exclusive, positives), tau)
            total += level_weight(level_weights, level, levels) / levels * mean
        terms.append(total)
    return terms


def pairs_constrained(z, paths, tau, positives="overlapping"):
    """Yields each level, finest first, with its terms; no pair loss is below one of a finer level."""
    largest_loss = 0.0
    for level in reversed(range(levels_of(paths))):
        losses = [
            [-log_probability(z, i, p, tau) for p in level_positives(paths, i, level, positives=positives)]
            for i in range(len(z))
        ]
        yield (
            level,
            [math.fsum(max(x, largest_loss) for x in row) / len(row) if row else 0.0 for row in losses],
        )
        largest_loss = max([largest_loss, *(x for row in losses for x in row)])


def levels_constrained(z, paths, tau, positives="overlapping"):
    """Yields each level, finest first, with its terms, or a finer level's if their sum would be lower."""
    largest_terms = [0.0] * len(z)
    for level in reversed(range(levels_of(paths))):
        positive_rows = [level_positives(paths, i, level, positives=positives) for i in range(len(z))]
        terms = [mean_over(z, i, positive_rows[i], tau) for i in range(len(z))]
        largest_terms = max(largest_terms, terms, key=math.fsum)
        yield level, largest_terms


def himulcone(z, paths, tau, level_weights="exp", granularity="pair", detach=False, positives="overlapping"):
    """Returns the terms of HiMulConE; `detach` changes only the gradient."""
    levels = levels_of(paths)
    constrained_terms = {"pair": pairs_constrained, "level": levels_constrained}[granularity]
    totals = [0.0] * len(z)
    for level, terms in constrained_terms(z, paths, tau, positives):
        weight = level_weight(level_weights, level, levels) / levels
        totals = [total + weight * term for total, term in zip(totals, terms, strict=True)]
    return totals


def hicone(z, paths, tau, granularity="pair", detach=False, positives="overlapping"):
    return himulcone(z, paths, tau, "uniform", granularity, detach, positives)


def lascl(z, paths, tau, unrelated=0.5, denominator="negatives"):
    """Returns terms with negatives' logits divided by the classes' similarity; 0 without negatives."""
    levels = levels_of(paths)
    terms = []
    for i in range(len(z)):
        positive_rows = level_positives(paths, i, levels - 1)
        logits = []
        for a in range(len(z)):
            if a != i and (a not in positive_rows or denominator == "candidates"):
                share = shared_levels(paths[i], paths[a]) / levels
                class_similarity = unrelated * (1 - share) + share
                logits.append(similarity(z[i], z[a]) / (tau * class_similarity))
        total = 0.0
        if logits:
            max_logit = max(logits)
            mass = math.log(math.fsum(math.exp(x - max_logit) for x in logits)) + max_logit
            total = math.fsum(mass - similarity(z[i], z[p]) / tau for p in positive_rows)
        terms.append(total / len(positive_rows) if positive_rows else 0.0)
    return terms


def jaccard_index(s, t):
    return len(s & t) / len(s | t) if s | t else 0.0


def jscl(z, sets, tau, normalizer="candidates"):
    terms = []
    for i in range(len(z)):
        j = {p: jaccard_index(sets[i], sets[p]) for p in range(len(z)) if p != i}
        divisor = len(j) if normalizer == "candidates" else math.fsum(j.values())
        terms.append(weighted(z, i, j, divisor, tau))
    return terms


def msc_weights(sets, i, alpha, prototypes):
    """Returns the weights of the other rows and, if there are prototypes, those of the anchor's labels."""
    rows, labels = {}, {}
    for label in sets[i]:
        attractions = {
            p: alpha / len(sets[i] | sets[p]) for p in range(len(sets)) if p != i and label in sets[p]
        }
        divisor = len(sets[i]) * (math.fsum(attractions.values()) + prototypes)
        for p, attraction in attractions.items():
            rows[p] = rows.get(p, 0.0) + attraction / divisor
        if prototypes:
            labels[label] = 1 / divisor
    return rows, labels


def msc(z, sets, tau, prototypes=None, alpha=1, beta=1):
    """Returns the terms of MSC; `prototypes` has one vector per label, None leaves the rows as candidates."""
    centres = prototypes or []
    terms = []
    for i in range(len(z)):
        row_weights, label_weights = msc_weights(sets, i, alpha, bool(centres))
        rows = {a: similarity(z[i], z[a]) / tau for a in range(len(z)) if a != i}
        labels = [similarity(z[i], c) / tau for c in centres]
        max_logit = max([*rows.values(), *labels], default=0.0)
        mass = beta * math.fsum(math.exp(x - max_logit) for x in rows.values())
        mass += math.fsum(math.exp(x - max_logit) for x in labels)
        total = math.fsum(w * (rows[p] - max_logit - math.log(mass)) for p, w in row_weights.items())
        total += math.fsum(w * (labels[c] - max_logit - math.log(mass)) for c, w in label_weights.items())
        terms.append(-total)
    return terms


def sincere(z, sets, tau, positives="overlapping", denominator="pair"):
    """Returns means of -log of a positive's share of itself and the negatives; 0 without negatives."""
    terms = []
    for i in range(len(z)):
        positive_rows = any_positives(sets, i)
        if positives == "equal":
            positive_rows = [p for p in positive_rows if sets[p] == sets[i]]
        negative_logits = [
            similarity(z[i], z[n]) / tau for n in range(len(z)) if n != i and n not in positive_rows
        ]
        total = 0.0
        for p in positive_rows:
            positive_logit = similarity(z[i], z[p]) / tau
            logits = (
                [positive_logit, *negative_logits]
                if denominator == "pair" or not negative_logits
                else negative_logits
            )
            max_logit = max(logits)
            total += math.log(math.fsum(math.exp(x - max_logit) for x in logits)) + max_logit - positive_logit
        terms.append(total / len(positive_rows) if positive_rows else 0.0)
    return terms


def reg_weights(sets, i, alpha, prototypes):
    """Returns the weights of the other rows and, if there are prototypes, those of the anchor's labels."""
    rows, labels = {}, {}
    for label in sets[i]:
        shares = {p: (len(sets[i] & sets[p]) / len(sets[p])) ** alpha for p in any_positives(sets, i)}
        shares = {p: share for p, share in shares.items() if label in sets[p]}
        divisor = len(sets[i]) * (math.fsum(shares.values()) + prototypes)
        for p, share in shares.items():
            rows[p] = rows.get(p, 0.0) + share / divisor
        if prototypes:
            labels[label] = 1 / divisor
    return rows, labels


def reg(z, sets, tau, alpha=1.0):
    """Returns the value of REG, whose gradient is not that of the value; see test_reg.py."""
    return [weighted(z, i, reg_weights(sets, i, alpha, False)[0], 1, tau) for i in range(len(z))]


ORACLES = {
    "simclr": simclr,
    "supcon": supcon,
    "all": all_,
    "any": any_,
    "mulsupcon": mulsupcon,
    "simdis": simdis,
    "jaccard": jaccard,
    "knn": knn,
    "himulcon": himulcon,
    "hicone": hicone,
    "himulcone": himulcone,
    "lascl": lascl,
    "jscl": jscl,
    "msc": msc,
    "reg": reg,
    "sincere": sincere,
}
PATH_LOSSES = ("himulcon", "hicone", "himulcone", "lascl")

MORE = [
    ("simdis", {"form": "printed", "penalty": "exponential", "rate": 0.7}),
    ("simdis", {"penalty": "exponential", "rate": 0.7}),
    ("simdis", {"form": "printed", "factors": "similarity"}),
    ("simdis", {"form": "printed", "factors": "dissimilarity"}),
    ("jaccard", {"threshold": 0.0, "strict": False}),
    ("jaccard", {"threshold": 1 / 3}),
    ("jaccard", {"threshold": 1 / 3, "strict": False}),
    ("hicone", {"granularity": "level", "detach": True}),
    ("himulcone", {"level_weights": "uniform", "granularity": "level"}),
    ("himulcone", {"level_weights": (1.0, 3.0, 0.0)}),
    ("himulcon", {"positives": "equal", "exclusive": True}),
    ("himulcone", {"positives": "equal", "granularity": "level"}),
    ("msc", {"beta": 2.0}),
    ("lascl", {"unrelated": 0.1, "denominator": "candidates"}),
]
CASES = cases_of(LOSSES, MORE)
"""Cases that have every loss with every option at least once."""
FIRST = [next(case for case in CASES if case[0] == name) for name in dict(CASES)]
"""The first case of each loss."""


def is_detached(case):
    """Returns whether the gradient is, on purpose, not that of the value."""
    return case[0] == "reg" or bool(case[1].get("detach"))


def mean_loss(name, z, labels, tau, **options):
    """Returns the mean over all anchors."""
    answer = ORACLES[name](z, labels, tau, **options)
    return answer if name == "mulsupcon" else math.fsum(answer) / len(z)
