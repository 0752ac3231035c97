"""Writes the models and the answers that the tests hold core/epp/predictor/xgboost against.

    python -m venv v && v/bin/pip install xgboost-cpu==3.2.0 numpy scipy
    OMP_NUM_THREADS=1 v/bin/python golden.py

Each model is a file as Booster.save_model writes it, gzipped. Beside it stand
rows and the library's answers to them, both as the bits of float32 numbers in
hexadecimal, a row a line: features, then the answer.
"""

import gzip
import json
import sys

import numpy as np
import xgboost as xgb


def hexadecimal(values):
    return " ".join(f"{b:08x}" for b in np.asarray(values, dtype=np.float32).view(np.uint32).ravel())


def write(name, seed, objective, categories, missing, rounds, rows, depth=6):
    rng = np.random.default_rng(seed)
    n, width = 1200, 7
    x = np.empty((n, width), dtype=np.float32)
    x[:, 0] = rng.integers(0, 2, n)
    x[:, 1] = rng.random(n)
    x[:, 2] = rng.integers(1, 20000, n)
    x[:, 3] = rng.integers(0, 40, n)
    x[:, 4] = rng.random(n) * 1e-3
    x[:, 5] = rng.integers(0, 4, n)
    x[:, 6] = rng.integers(0, categories, n)
    y = 10 + 0.04 * x[:, 2] * (1 + x[:, 0]) + 30 * (x[:, 6] % 3) ** 2 + 5 * x[:, 3] * x[:, 1] + rng.normal(0, 3, n)
    if missing:
        for c in range(width):
            x[rng.random(n) < 0.1, c] = np.nan
    types = ["int", "float", "int", "int", "float", "c", "c"]
    params = dict(max_depth=depth, eta=0.05, subsample=0.8, colsample_bytree=0.8, min_child_weight=5, gamma=0.2, alpha=0.01, reg_lambda=0.1,
                  tree_method="hist", seed=42, nthread=1, objective=objective)
    if objective == "reg:quantileerror":
        params["quantile_alpha"] = 0.9
    names = ["is_queued", "kv", "tokens", "running", "tiny", "bucket", "type"]
    booster = xgb.train(params, xgb.DMatrix(x, y, feature_names=names, feature_types=types, enable_categorical=True), rounds)
    model = bytes(booster.save_raw("json"))

    t = np.empty((rows, width), dtype=np.float32)
    for c in range(width):
        t[:, c] = rng.choice(x[:, c], rows)
        wild = rng.random(rows) < 0.2
        t[wild, c] = (rng.random(wild.sum()) * np.nanmax(x[:, c]) * 1.5).astype(np.float32)
        if types[c] == "c":
            t[wild, c] = rng.integers(0, categories, wild.sum())
        t[rng.random(rows) < 0.05, c] = np.nan
    # On thresholds, exactly.
    trees = json.loads(model)["learner"]["gradient_booster"]["model"]["trees"]
    cuts = np.array([c for k in trees for c, f, l in zip(k["split_conditions"], k["split_indices"], k["left_children"]) if l >= 0 and f == 2], dtype=np.float32)
    if len(cuts):
        t[: rows // 4, 2] = rng.choice(cuts, rows // 4)
    p = booster.predict(xgb.DMatrix(t, feature_names=names, feature_types=types, enable_categorical=True))
    with open(name + ".json.gz", "wb") as f:
        f.write(gzip.compress(model, mtime=0))
    with open(name + ".rows", "w") as f:
        for row, answer in zip(t, p):
            f.write(hexadecimal(row) + " " + hexadecimal([answer]) + "\n")


def main():
    if xgb.__version__ != "3.2.0":
        sys.exit("expected xgboost 3.2.0, found " + xgb.__version__)
    write("mean", 1, "reg:squarederror", 4, False, 60, 300)
    write("quantile", 2, "reg:quantileerror", 4, True, 40, 300)
    write("categories", 3, "reg:squarederror", 60, True, 40, 300)
    write("stump", 4, "reg:squarederror", 4, False, 1, 40, depth=1)


main()
