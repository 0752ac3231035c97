"""Fits trees with XGBoost for windtunnel's latency predictor.

A question on standard input is a line of JSON, {"number", "sets": [{"name",
"rows", "columns": [{"name", "type"}], "objective", "alpha"}]}, and then for each
set its rows and its targets as little-endian float32. The answer on standard
output is a line of JSON, {"number", "models": [{"name", "size"}]} or {"number",
"error"}, and then the models as the library writes them (JSON). The first line
says which library there is. It ends with its standard input.
"""

import json
import os
import platform
import sys

answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what a library prints is no answer

try:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
except (ImportError, ValueError, OSError):
    pass

import numpy as np
import xgboost as xgb

# Those of llm-d-latency-predictor.
PARAMETERS = dict(
    max_depth=6, eta=0.05, subsample=0.8, colsample_bytree=0.8, min_child_weight=5, gamma=0.2, reg_alpha=0.01, reg_lambda=0.1,
    tree_method="hist", seed=42, nthread=1,
)
ROUNDS = 200


def take(count):
    size = 4 * count
    data = sys.stdin.buffer.read(size)
    if len(data) != size:
        sys.exit(0)
    return np.frombuffer(data, dtype="<f4")


def fit(s, rows, targets):
    params = dict(PARAMETERS, objective=s["objective"])
    if s["objective"] == "reg:quantileerror":
        params["quantile_alpha"] = s["alpha"]
    names = [c["name"] for c in s["columns"]]
    types = [c["type"] for c in s["columns"]]
    data = xgb.DMatrix(rows, targets, feature_names=names, feature_types=types, enable_categorical=True)
    return bytes(xgb.train(params, data, ROUNDS).save_raw("json"))


def answer(head, *bodies):
    answers.write(json.dumps(head).encode() + b"\n")
    for body in bodies:
        answers.write(body)
    answers.flush()


def main():
    answer({"library": "xgboost " + xgb.__version__, "processor": platform.machine(), "python": platform.python_version()})
    for line in sys.stdin.buffer:
        question = json.loads(line)
        try:
            sets = []
            for s in question["sets"]:
                n, width = s["rows"], len(s["columns"])
                sets.append((s, take(n * width).reshape(n, width), take(n)))
            models = [(s["name"], fit(s, rows, targets)) for s, rows, targets in sets]
        except Exception as e:  # a set that cannot be fitted is no reason to end
            answer({"number": question["number"], "error": str(e)[:2000]})
            continue
        answer({"number": question["number"], "models": [{"name": n, "size": len(m)} for n, m in models]}, *[m for _, m in models])


main()
