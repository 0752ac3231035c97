// Package vllmservice is the service vllm.grpc.engine.VllmEngine, generated: its
// name, and a client. Its messages are in core/modelserver/vllmgrpc, whose script
// generate makes both.
package vllmservice
