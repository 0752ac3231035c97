// Package predictor is llm-d's latency predictor in wall time: a training server
// and prediction servers with its wire, around core/epp/predictor. Trees are fitted by
// the XGBoost library in a Python process of their own (Trainer), and evaluated
// here.
package predictor
