package contiv

import (
	"encoding/json"
	"strings"
	"testing"
)

// podRequest and podResponse are contiv's own types (netplugin, mgmtfn/k8splugin/cniapi).
type podRequest struct {
	Name        string `json:"K8S_POD_NAME,omitempty"`
	Namespace   string `json:"K8S_POD_NAMESPACE,omitempty"`
	ContainerID string `json:"K8S_POD_INFRA_CONTAINER_ID,omitempty"`
	Netns       string `json:"CNI_NETNS,omitempty"`
	IfName      string `json:"CNI_IFNAME,omitempty"`
}

type podResponse struct {
	Result      uint   `json:"result,omitempty"`
	EndpointID  string `json:"endpointid,omitempty"`
	IPAddress   string `json:"ipaddress,omitempty"`
	IPv6Address string `json:"ipv6address,omitempty"`
	ErrMsg      string `json:"errmsg,omitempty"`
	ErrInfo     string `json:"errinfo,omitempty"`
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRequestIsContivs(t *testing.T) {
	for _, q := range []Request{
		{},
		{Pod: "web-0", Namespace: "default", ContainerID: "c1", Netns: "/proc/7/ns/net", IfName: "eth0"},
		{Pod: `a","K8S_POD_NAMESPACE":"kube-system`, Namespace: `\u0041<&>`, ContainerID: "c1", IfName: "eth0"},
	} {
		want := marshal(t, podRequest{q.Pod, q.Namespace, q.ContainerID, q.Netns, q.IfName})
		if got := string(q.JSON()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if q.ContainerID == "" {
			continue
		}
		if back, err := ParseRequest(q.JSON()); err != nil || back != q {
			t.Errorf("read back: %+v, %v\nwant %+v", back, err, q)
		}
	}
}

func TestResponseIsContivs(t *testing.T) {
	for _, a := range []Response{
		{},
		{EndpointID: "c1", IPAddress: "20.1.1.9/24", IPv6Address: "fd00::9/64"},
		{Result: 1, ErrMsg: "Error creating EP", ErrInfo: "Err: \"no\"\n"},
		{Result: 999, ErrMsg: "x"},
	} {
		want := marshal(t, podResponse{uint(a.Result), a.EndpointID, a.IPAddress, a.IPv6Address, a.ErrMsg, a.ErrInfo})
		if got := string(a.JSON()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if back, err := ParseResponse(a.JSON()); err != nil || back != a {
			t.Errorf("read back: %+v, %v\nwant %+v", back, err, a)
		}
	}
}

func TestParseResponseRefuses(t *testing.T) {
	for _, body := range []string{"", "ok", "[]", `{"result": "1"}`, `{"result": -1}`, `{"result": 1e99}`, `{"ipaddress": 7}`, `{"ipaddress": "10.`} {
		if a, err := ParseResponse([]byte(body)); err == nil {
			t.Errorf("%s was read as %+v", body, a)
		}
	}
}

func FuzzParseResponse(f *testing.F) {
	f.Add([]byte(`{"result":1,"errmsg":"Error creating EP","errinfo":"Err: no"}`))
	f.Add([]byte(`{"endpointid":"c1","ipaddress":"20.1.1.9/24"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := ParseResponse(body)
		if err != nil {
			return
		}
		if back, err := ParseResponse(a.JSON()); err != nil || back.Result != a.Result {
			t.Errorf("%q was read as %+v, and that as %+v, %v", body, a, back, err)
		}
	})
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"K8S_POD_NAME":"web","K8S_POD_INFRA_CONTAINER_ID":"c1","CNI_IFNAME":"eth0"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := ParseRequest(body)
		if err == nil && (q.ContainerID == "" || strings.ContainsAny(q.ContainerID+q.IfName, "/\x00")) {
			t.Errorf("%q was read as %+v", body, q)
		}
	})
}
