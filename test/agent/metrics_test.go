package agent

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/harmtest"
)

// TestMetricsForAll: whoever asks for the metrics gets them, while others ask all the time.
func TestMetricsForAll(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	harmtest.Attach(t, host, usual, "web", port(8000))
	start(t, host, "--metrics", "127.0.0.1:9469")
	printed := host.MustRun(t, "sh", "-c", `for i in $(seq 12); do
		(for j in 1 2 3; do curl --silent --output /dev/null --write-out '%{http_code}\n' http://127.0.0.1:9469/metrics; done) &
		done; wait`)
	if codes := strings.Fields(printed); len(codes) != 36 || strings.Count(printed, "200") != 36 {
		t.Errorf("answers: %q", codes)
	}
}
