package operator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// figures reads metrics: values by name and labels, as in `name{a="b",c="d"}`, of histograms the number of what they count.
func figures(t *testing.T, text string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
	values := map[string]float64{}
	for name, family := range families {
		for _, m := range family.Metric {
			values[name+labels(m)] = m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func labels(m *dto.Metric) string {
	var list []string
	for _, l := range m.Label {
		list = append(list, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if list == nil {
		return ""
	}
	return "{" + strings.Join(list, ",") + "}"
}

// TestMetrics counts what is on a node: three attachments, of which one is gone and has left its addresses.
func TestMetrics(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.must("log", "on")
	o.must("add", "demo", o.host.NewPod(t, "web").Path(), "--id", "web", "--publish", "8080:80", "--publish", "5353:53/udp")
	o.attach("db")
	gone, _ := o.attach("gone")
	gone.Delete(t)
	if code, printed := o.cnictl("add", "demo", o.host.NewPod(t, "late").Path(), "--id", "late", "--publish", "8080:81"); code == 0 {
		t.Errorf("a port that is taken was published:\n%s", printed)
	}
	o.must("del", "demo", "--id", "late")
	before := o.host.Snapshot(t)
	got := figures(t, o.must("metrics"))
	if diff := before.Diff(o.host.Snapshot(t)); diff != "" {
		t.Errorf("metrics has changed the node:\n%s", diff)
	}
	for name, want := range map[string]float64{
		`cnibox_pool_addresses{network="demo",subnet="10.88.0.0/24"}`:        253,
		`cnibox_pool_addresses_used{network="demo",subnet="10.88.0.0/24"}`:   3,
		`cnibox_pool_addresses_leaked{network="demo",subnet="10.88.0.0/24"}`: 1,
		`cnibox_pool_addresses_leaked{network="demo",subnet="fd00:88::/64"}`: 1,
		`cnibox_attachments{network="demo",state="alive"}`:                   2,
		`cnibox_attachments{network="demo",state="gone"}`:                    1,
		`cnibox_attachments{network="demo",state="unknown"}`:                 0,
		`cnibox_published_ports{network="demo",protocol="tcp"}`:              1,
		`cnibox_published_ports{network="demo",protocol="udp"}`:              1,
		`cnibox_unread_sources`:                                               0,
		`cnibox_log_enabled`:                                                  1,
		`cnibox_last_hour_calls{plugin="bridge",verb="ADD"}`:                  4,
		`cnibox_last_hour_calls{plugin="portmap",verb="DEL"}`:                 1,
		`cnibox_last_hour_call_duration_seconds{plugin="tuning",verb="ADD"}`:  4,
		`cnibox_last_hour_call_errors{code="11",plugin="portmap",verb="ADD"}`: 1,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v (%v), want %v", name, value, ok, want)
		}
	}
	if t.Failed() {
		t.Log(o.must("metrics"))
	}
	before = o.host.Snapshot(t)
	o.must("metrics", "--textfile-dir", "/run")
	if diff := before.Diff(o.host.Snapshot(t)); strings.Count(diff, "\n") > 1 || !strings.Contains(diff, "+ file /run/cnibox.prom -rw-r--r--") {
		t.Errorf("--textfile-dir made:\n%.500s", diff)
	}
	if value := figures(t, o.host.MustRun(t, "cat", "/run/cnibox.prom"))[`cnibox_attachments{network="demo",state="gone"}`]; value != 1 {
		t.Errorf("in the file %v attachments are gone, want 1", value)
	}
	if code, printed := o.cnictl("metrics", "--textfile-dir", "/run/no"); code != 1 || !strings.Contains(printed, "collector.textfile.directory") {
		t.Errorf("a directory that is not there: exit code %d\n%s", code, printed)
	}
}

// TestMetricsOfBrokenNode says how much could not be read, and the rest.
func TestMetricsOfBrokenNode(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.attach("web")
	o.attach("torn")
	o.host.MustRun(t, "sh", "-c", "truncate -s 20 /var/lib/cni/results/demo-torn-eth0; echo '{' >/etc/cni/net.d/20-broken.conflist; mkdir -p /var/log/cnibox /run/log; echo rubbish >/run/log/calls.jsonl")
	got := figures(t, o.must("metrics", "--log-dir", "/run/log"))
	for name, want := range map[string]float64{
		`cnibox_unread_sources`: 2, `cnibox_attachments{network="demo",state="alive"}`: 2, `cnibox_pool_addresses_used{network="demo",subnet="10.88.0.0/24"}`: 2,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	found := false
	for name := range got {
		found = found || strings.HasPrefix(name, "cnibox_findings{") && strings.Contains(name, "broken")
	}
	if !found {
		t.Errorf("no finding is about the broken file: %v", got)
	}
}
