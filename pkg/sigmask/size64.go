//go:build !mips && !mipsle && !mips64 && !mips64le

package sigmask

// size is that of a sigset_t in bytes: a bit for each of 64 signals.
const size = 8
