"""Writes the models and the answers that the tests hold core/epp/predictor against.

    python -m venv v && v/bin/pip install xgboost-cpu==3.2.0 numpy scipy
    OMP_NUM_THREADS=1 v/bin/python golden.py

NAME.model.json.gz is what `windtunnel sim --save-model` writes, with the trees of
the library. NAME.answers has a row a line: a PredictionRequest, and the library's
answers for both targets as the bits of float32 numbers in hexadecimal. Columns are
made here from llm-d-latency-predictor's description, not by windtunnel.
"""

import gzip
import json
import sys

import numpy as np
import xgboost as xgb

POD_TYPES = ["", "prefill", "decode", "H100"]
CATEGORIES = ("prefill_score_bucket", "pod_type_cat")


def columns(target, noqueue):
    names = ["is_queued", "kv_cache_percentage", "input_token_length", "num_request_waiting", "num_request_running",
             "prefill_tokens_in_flight", "decode_tokens_in_flight"]
    if target == "ttft":
        names += ["encoder_matched_size", "encoder_input_size", "prefix_cache_score", "effective_input_tokens", "prefill_score_bucket", "pod_type_cat"]
    else:
        names += ["num_tokens_generated", "pod_type_cat"]
    return [n for n in names if not noqueue or n not in ("is_queued", "num_request_waiting")]


def kind(name):
    if name in CATEGORIES:
        return "c"
    return "float" if name in ("kv_cache_percentage", "prefix_cache_score", "effective_input_tokens") else "int"


def value(row, name, zero_tokens):
    if name == "is_queued":
        return float(row["num_request_waiting"] > 0)
    if name == "effective_input_tokens":
        return (1 - row["prefix_cache_score"]) * row["input_token_length"]
    if name == "prefill_score_bucket":
        return float(min(int(row["prefix_cache_score"] * 4), 3))
    if name == "pod_type_cat":
        return float(POD_TYPES.index(row["pod_type"])) if row["pod_type"] in POD_TYPES else np.nan
    if name == "num_tokens_generated" and zero_tokens:
        return 0.0
    return row[name]


def matrix(rows, target, noqueue, gated, y=None):
    names = columns(target, noqueue)
    x = np.array([[value(r, n, not gated) for n in names] for r in rows], dtype=np.float32).reshape(len(rows), len(names))
    return xgb.DMatrix(x, y, feature_names=names, feature_types=[kind(n) for n in names], enable_categorical=True)


def request(rng, queued):
    size = int(rng.integers(0, 400))
    return {"kv_cache_percentage": float(rng.random()), "input_token_length": int(rng.integers(0, 8000)),
            "num_request_waiting": int(rng.integers(1, 30)) if queued else 0, "num_request_running": int(rng.integers(0, 60)),
            "num_tokens_generated": int(rng.integers(0, 500)), "prefix_cache_score": float(rng.choice([0, 0.25, 0.5, 1, rng.random()])),
            "pod_type": str(rng.choice(POD_TYPES + ["unknown"])), "prefill_tokens_in_flight": int(rng.integers(0, 20000)),
            "decode_tokens_in_flight": int(rng.integers(0, 3000)), "encoder_matched_size": int(rng.integers(0, size + 1)), "encoder_input_size": size}


def write(name, seed, objective, gated, rounds):
    rng = np.random.default_rng(seed)
    rows = [request(rng, rng.random() < 0.5) for _ in range(1500)]
    kinds = {"": 1, "prefill": 0.7, "decode": 1.4, "H100": 0.5, "unknown": 2}
    truth = {
        "ttft": [kinds[r["pod_type"]] * (5 + 0.03 * r["input_token_length"] * (1 - r["prefix_cache_score"]) + 0.002 * r["prefill_tokens_in_flight"] + 9 * r["num_request_waiting"]
                 + 0.1 * (r["encoder_input_size"] - r["encoder_matched_size"])) for r in rows],
        "tpot": [kinds[r["pod_type"]] * (4 + 0.2 * r["num_request_running"] + 8 * r["kv_cache_percentage"] + 0.001 * r["decode_tokens_in_flight"] + 0.01 * r["num_tokens_generated"]) for r in rows],
    }
    params = dict(max_depth=6, eta=0.05, subsample=0.8, colsample_bytree=0.8, min_child_weight=5, gamma=0.2, alpha=0.01, reg_lambda=0.1, tree_method="hist", seed=42, nthread=1,
                  objective="reg:quantileerror" if objective == "quantile" else "reg:squarederror")
    if objective == "quantile":
        params["quantile_alpha"] = 0.9
    models = {}
    for target in ("ttft", "tpot"):
        noise = rng.normal(0, 2, len(rows))
        for suffix, keep in [("", lambda r: True)] + ([("_noqueue", lambda r: r["num_request_waiting"] == 0), ("_queued", lambda r: r["num_request_waiting"] > 0)] if gated else []):
            chosen = [i for i, r in enumerate(rows) if keep(r)]
            y = np.array([max(0.1, truth[target][i] + noise[i]) for i in chosen], dtype=np.float32)
            models[target + suffix] = xgb.train(params, matrix([rows[i] for i in chosen], target, suffix == "_noqueue", suffix != "", y), rounds)
    saved = {"format": "windtunnel/latency-model/v1", "podTypes": POD_TYPES, "library": "xgboost " + xgb.__version__,
             "options": {"objective": objective, "quantile": 0.9, "retrainingInterval": 10_000_000_000, "minSamples": 10, "bucketSize": 500, "testRatio": 0.1, "maxTest": 1000,
                         "ensemble": True, "minSplit": 200, "zeroTokens": True, "tokensInFlight": True, "encoder": True, "seed": 1},
             "models": {n: json.loads(bytes(m.save_raw("json"))) for n, m in models.items()}}
    with open(name + ".model.json.gz", "wb") as f:
        f.write(gzip.compress(json.dumps(saved).encode(), mtime=0))
    with open(name + ".answers", "w") as f:
        for _ in range(300):
            row = request(rng, rng.random() < 0.5)
            answers = []
            for target in ("ttft", "tpot"):
                suffix = ("_noqueue" if row["num_request_waiting"] == 0 else "_queued") if gated else ""
                p = models[target + suffix].predict(matrix([row], target, suffix == "_noqueue", gated))
                answers.append("%08x" % int(np.maximum(p, 0).astype(np.float32).view(np.uint32)[0]))
            f.write(json.dumps(row) + " " + " ".join(answers) + "\n")


def main():
    if xgb.__version__ != "3.2.0":
        sys.exit("expected xgboost 3.2.0, found " + xgb.__version__)
    write("mean", 1, "mean", False, 60)
    write("quantile-gated", 2, "quantile", True, 40)


main()
