package hardware

// VLLMDefaults returns the scheduler's limits that vLLM's API server takes on this accelerator if its command line
// names none. They are higher on parts with 70 GiB or more, except the A100 (vllm/engine/arg_utils.py).
func (a *Accelerator) VLLMDefaults() (maxNumSeqs, maxNumBatchedTokens int) {
	if a.MemoryBytes >= 70<<30 && a.Name != "A100-80GB" {
		return 1024, 8192
	}
	return 256, 2048
}
