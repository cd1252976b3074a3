package bandwidth

import (
	"math"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Keys implements plugin.Configured.
func (Plugin) Keys() keys.Set {
	return keys.Set{Own: ownKeys(), Runtime: runtimeKeys()}
}

// Parse implements plugin.Configured.
func (Plugin) Parse(r *plugin.Request) error {
	_, err := parse(r.Config)
	return err
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return append(limitKeys(), keys.Key{Name: "latency", Type: keys.Int, Range: &keys.Range{Min: 1, Max: math.MaxInt}, Since: keys.Ours, Default: "25 ms and the burst",
		Doc: "How long packets may wait when more comes than may pass, in milliseconds. Packets that would wait longer are dropped."})
}

// limitKeys are the limits, of the configuration or else of the runtime.
func limitKeys() keys.Table {
	return keys.Table{
		{Name: "ingressRate", Type: keys.Int, Range: &keys.Range{Min: leastRate, Max: math.MaxInt, Zero: true}, Default: "no limit",
			Doc: "The most that the container receives, in bits a second."},
		{Name: "ingressBurst", Type: keys.Int, Range: &keys.Range{Max: mostBurst}, Default: "none",
			Doc: "The most that it may receive at once after a pause, in bits: at least a packet (12112 with an MTU of 1500). Needed with a rate."},
		{Name: "egressRate", Type: keys.Int, Range: &keys.Range{Min: leastRate, Max: math.MaxInt, Zero: true}, Default: "no limit",
			Doc: "The most that the container sends, in bits a second."},
		{Name: "egressBurst", Type: keys.Int, Range: &keys.Range{Max: mostBurst}, Default: "none",
			Doc: "The most that it may send at once after a pause, in bits. Needed with a rate."},
	}
}

// runtimeKeys are those that the runtime fills in.
func runtimeKeys() keys.Table {
	return keys.Table{
		{Name: "bandwidth", Type: keys.Object, Keys: limitKeys(),
			Doc: "The limits, where the configuration has none of them."},
	}
}
