// Package vllmservice is the generated code of the service vllm.grpc.engine.VllmEngine: its name, and a client.
// core/modelserver/vllmgrpc has its messages, and the script generate that makes both.
package vllmservice
