// Package predictor runs llm-d's latency predictor in wall time: a training server and prediction servers with the
// real ones' HTTP API, around core/epp/predictor. The XGBoost library fits the trees in a Python process (Trainer).
// This package evaluates them. Begin with Start.
package predictor
