package start

func init() { use(0) }

// need is the size in bytes of a frame that the runtime makes room for by a stack
// of 32 KiB.
//
// A goroutine starts with 2 KiB, and each time the runtime doubles that it looks
// up every frame in tables all over the binary and fills a cache with stacks of
// the new size, which nobody uses here. A call goes up to 32 KiB. To get there in
// one step, with one frame to look up, saves it 30 page faults of 280, and 1.5 % of
// its time. (perf record -e page-faults; medians of 150 interleaved rounds, ADD and
// DEL of three entries.)
const need = 24 << 10

// use has such a frame, and only says that it touches it: the runtime looks at the
// size when the function is called.
//
//go:noinline
func use(n int) byte {
	if n == 0 {
		return 0
	}
	var frame [need]byte
	for i := range frame {
		frame[i] = byte(n)
	}
	return frame[n]
}
