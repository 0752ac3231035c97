package engine

// CachedPrefix is how many blocks of a prompt's beginning are in the prefix
// cache, the CPU tier included. It uses nothing and moves nothing.
func (e *Engine) CachedPrefix(hashes []uint64) int {
	if e.pool == nil {
		return 0
	}
	e.catchUp(e.now)
	return int(e.pool.lookup(&chain{hashes: hashes}, int32(min(len(hashes), maxTokens))).blocks)
}
