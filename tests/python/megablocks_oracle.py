"""What MegaBlocks' operations return, in numpy, written from their documented behaviour and from docs/design.md.

Rows are float16 (or wider) arrays; indices, bins and the like are integer arrays. Nothing here imports binmoe.
"""

import numpy as np


def starts_of(bins):
    return np.concatenate(([0], bins[:-1])).astype(np.int64)


def sorted_by_expert(experts, num_experts):
    """(bin_ids, indices, bins) of the assignments' experts; -1 does not occur."""
    indices = np.argsort(experts, kind="stable")
    counts = np.bincount(experts, minlength=num_experts)
    return experts[indices], indices, np.cumsum(counts)


def rows_of_binned(indices, bins, bin_size):
    """Row e*C + c of each assignment, -1 where dropped."""
    rows = np.full(len(indices), -1, np.int64)
    for e, start in enumerate(starts_of(bins)):
        kept = indices[start : min(bins[e], start + bin_size)]
        rows[kept] = e * bin_size + np.arange(len(kept))
    return rows


def rows_of_padded(indices, bins, padded_bins):
    """Row of each assignment when bin e begins at padded_bins[e-1]."""
    rows = np.full(len(indices), -1, np.int64)
    for e, (start, padded_start) in enumerate(zip(starts_of(bins), starts_of(padded_bins), strict=True)):
        entries = indices[start : bins[e]]
        rows[entries] = padded_start + np.arange(len(entries))
    return rows


def gather(x, rows, num_rows, top_k, weights=None):
    """y[rows[a]] = w[a] * x[a // K], the product rounded once; other rows are +0."""
    y = np.zeros((num_rows, x.shape[1]), x.dtype)
    kept = np.flatnonzero(rows >= 0)
    values = x[kept // top_k]
    if weights is not None:
        values = (values.astype(np.float32) * weights[kept, None].astype(np.float32)).astype(x.dtype)
    y[rows[kept]] = values
    return y


def products_of(y, rows, weights):
    """(w[a] * y[rows[a]]) in float32, [T*K, H]; +0 where dropped."""
    products = np.zeros((len(rows), y.shape[1]), np.float32)
    kept = np.flatnonzero(rows >= 0)
    products[kept] = y[rows[kept]].astype(np.float32)
    if weights is not None:
        products[kept] *= weights[kept, None].astype(np.float32)
    return products


def scatter(y, rows, top_k, weights=None, round_products=False):
    """out[t] = sum over k in order, in float32 from +0, rounded once to y's dtype.

    round_products: each product is rounded to y's dtype first, as MegaBlocks does.
    """
    products = products_of(y, rows, weights)
    if round_products:
        products = products.astype(y.dtype).astype(np.float32)
    products = products.reshape(len(rows) // top_k, top_k, y.shape[1])
    total = np.zeros((products.shape[0], y.shape[1]), np.float32)
    for k in range(top_k):
        total += products[:, k]
    return total.astype(y.dtype)


def weight_gradient(y, rows, grad, top_k):
    """(dw, bound on the error of any float32 sum) [T*K] float64."""
    dw = np.zeros(len(rows))
    bound = np.zeros(len(rows))
    kept = np.flatnonzero(rows >= 0)
    products = y[rows[kept]].astype(np.float64) * grad[kept // top_k].astype(np.float64)
    dw[kept] = products.sum(axis=1)
    bound[kept] = y.shape[1] * 2.0**-24 * np.abs(products).sum(axis=1)
    return dw, bound
