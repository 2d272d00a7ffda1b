"""Every loss once more, slowly: Python loops over rows and label sets, written from the equations.

Nothing here is shared with mlcl. Rows are lists of floats, label sets are frozensets, classes and samples
are integers, ratings are lists of numbers. Each oracle gives the list of the anchors' terms L_i; `mulsupcon`
gives the value for the whole batch, since its equation has no other.
"""

import math


def similarity(a, b, kind="dot"):
    if kind == "dot":
        return math.fsum(x * y for x, y in zip(a, b, strict=True))
    return -math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def log_probability(z, i, p, tau, kind="dot"):
    logits = [similarity(z[i], z[a], kind) / tau for a in range(len(z)) if a != i]
    top = max(logits)
    return similarity(z[i], z[p], kind) / tau - top - math.log(math.fsum(math.exp(x - top) for x in logits))


def mean_over(z, i, positives, tau):
    if not positives:
        return 0.0
    return -math.fsum(log_probability(z, i, p, tau) for p in positives) / len(positives)


def simclr(z, samples, tau):
    terms = []
    for i in range(len(z)):
        positives = [p for p in range(len(z)) if p != i and samples[p] == samples[i]]
        terms.append(mean_over(z, i, positives, tau))
    return terms


def supcon(z, classes, tau):
    terms = []
    for i in range(len(z)):
        positives = [p for p in range(len(z)) if p != i and classes[p] == classes[i] and classes[i] != -1]
        terms.append(mean_over(z, i, positives, tau))
    return terms


def all_(z, sets, tau, empty_match=True):
    terms = []
    for i in range(len(z)):
        positives = [p for p in range(len(z)) if p != i and sets[p] == sets[i]]
        if not sets[i] and not empty_match:
            positives = []
        terms.append(mean_over(z, i, positives, tau))
    return terms


def any_positives(sets, i):
    return [p for p in range(len(sets)) if p != i and len(sets[p] & sets[i]) > 0]


def any_(z, sets, tau):
    return [mean_over(z, i, any_positives(sets, i), tau) for i in range(len(z))]


def mulsupcon(z, sets, tau, normalization="paper"):
    rows = range(len(z))
    terms = []
    valid = 0
    for i in rows:
        total = 0.0
        for label in sets[i]:
            positives = [p for p in rows if p != i and label in sets[p]]
            if positives:
                valid += 1
                total += mean_over(z, i, positives, tau)
        terms.append(total)
    if normalization == "per_sample":
        return math.fsum(terms[i] / len(sets[i]) for i in rows if sets[i]) / len(z)
    divisor = sum(len(s) for s in sets) if normalization == "paper" else valid
    return math.fsum(terms) / divisor if divisor else 0.0


def factor(s, t, penalty="inverse", rate=None):
    shared = len(s & t)
    if shared == 0:
        return 0.0
    extra = len(t - (s & t))
    decay = 1 / (1 + extra) if penalty == "inverse" else math.exp(-rate * extra)
    return shared / len(s) * decay


def simdis(z, sets, tau, form="weighted", penalty="inverse", rate=None, normalizer="positives"):
    terms = []
    for i in range(len(z)):
        positives = any_positives(sets, i)
        factors = {p: factor(sets[i], sets[p], penalty, rate) for p in positives}
        if not positives:
            terms.append(0.0)
        elif form == "printed":
            total = 0.0
            for p in positives:
                total += math.log(factors[p] * math.exp(log_probability(z, i, p, tau)))
            terms.append(-total / len(positives))
        else:
            total = math.fsum(factors[p] * log_probability(z, i, p, tau) for p in positives)
            divisor = len(positives) if normalizer == "positives" else math.fsum(factors.values())
            terms.append(-total / divisor)
    return terms


def jaccard_similarity(a, b):
    top = bottom = 0
    for x, y in zip(a, b, strict=True):
        top += min(x, y)
        bottom += max(x, y)
    return top / bottom if bottom else 0.0


def jaccard(z, ratings, tau, threshold=0.5, strict=True):
    terms = []
    for i in range(len(z)):
        total = 0.0
        count = 0
        for p in range(len(z)):
            s = jaccard_similarity(ratings[i], ratings[p])
            if p != i and (s > threshold or (s == threshold and not strict)):
                total += s * log_probability(z, i, p, tau)
                count += 1
        terms.append(-total / count if count else 0.0)
    return terms


def knn(z, sets, tau, dynamic=True):
    terms = []
    for i in range(len(z)):
        shared = {}
        for k in range(len(z)):
            if k != i:
                shared[k] = len(sets[i] & sets[k]) if dynamic else int(len(sets[i] & sets[k]) > 0)
        total = 0.0
        for p, c in shared.items():
            if c:
                total -= c / sum(shared.values()) * log_probability(z, i, p, tau, "euclidean")
        terms.append(total)
    return terms


ORACLES = {
    "simclr": simclr,
    "supcon": supcon,
    "all": all_,
    "any": any_,
    "mulsupcon": mulsupcon,
    "simdis": simdis,
    "jaccard": jaccard,
    "knn": knn,
}

CASES = [
    ("simclr", {}),
    ("supcon", {}),
    ("all", {}),
    ("all", {"empty_match": False}),
    ("any", {}),
    ("mulsupcon", {}),
    ("mulsupcon", {"normalization": "paper_valid"}),
    ("mulsupcon", {"normalization": "per_sample"}),
    ("simdis", {}),
    ("simdis", {"form": "printed"}),
    ("simdis", {"form": "printed", "penalty": "exponential", "rate": 0.7}),
    ("simdis", {"penalty": "exponential", "rate": 0.7}),
    ("simdis", {"normalizer": "factors"}),
    ("jaccard", {}),
    ("jaccard", {"threshold": 0.0, "strict": False}),
    ("jaccard", {"threshold": 1 / 3}),
    ("jaccard", {"threshold": 1 / 3, "strict": False}),
    ("knn", {}),
    ("knn", {"dynamic": False}),
]
"""Every loss with every option at least once."""


def case_id(case):
    name, options = case
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])


def mean_loss(name, z, labels, tau, **options):
    """The mean over all anchors."""
    answer = ORACLES[name](z, labels, tau, **options)
    return answer if name == "mulsupcon" else math.fsum(answer) / len(z)
