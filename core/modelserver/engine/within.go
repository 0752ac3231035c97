package engine

// CachedPrefix returns the number of leading blocks of a prompt that are in the prefix cache, including the CPU tier.
// It neither uses nor moves any block.
func (e *Engine) CachedPrefix(hashes []uint64) int {
	if e.pool == nil {
		return 0
	}
	e.catchUp(e.now)
	return int(e.pool.lookup(&chain{hashes: hashes}, int32(min(len(hashes), maxTokens))).blocks)
}
