// Package contiv is what the plugin contivk8s and the daemon that it calls have in common: what they send each other, and what is noted of
// attachments on the node. It is the API of contiv's daemon, netplugin.
package contiv

import (
	"strconv"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// A call is a POST over a unix socket. contiv's daemon serves one that has exactly this type and one of these paths.
const (
	DefaultSocket = "/run/contiv/contiv-cni.sock"
	AddPath       = "/ContivCNI.AddPod"
	DelPath       = "/ContivCNI.DelPod"
	ContentType   = "application/json"

	// NetnsHeader names the path of the network namespace as the runtime gave it. The namespace itself goes along as an open file
	// (SCM_RIGHTS) with the first bytes of the request. contiv's daemon passes over both.
	NetnsHeader = "Cni-Netns"

	// MaxBody is how many bytes the body of a request or an answer can have.
	MaxBody = 1 << 20
)

// Request is the body of an ADD and of a DEL.
type Request struct {
	Pod         string
	Namespace   string // the pod's, in Kubernetes
	ContainerID string
	Netns       string // a path that leads to the network namespace while the call lasts; "" if there is none
	IfName      string
}

// JSON returns the request as it is sent: the keys in contiv's order, without those that have no value.
func (q Request) JSON() []byte {
	o := conf.New()
	o.Set("K8S_POD_NAME", q.Pod)
	o.Set("K8S_POD_NAMESPACE", q.Namespace)
	o.Set("K8S_POD_INFRA_CONTAINER_ID", q.ContainerID)
	o.Set("CNI_NETNS", q.Netns)
	o.Set("CNI_IFNAME", q.IfName)
	return o.JSON()
}

// ParseRequest reads a request. The container id and the interface name are such that CNI allows them; keys that are not known are passed
// over, as contiv's daemon does.
func ParseRequest(body []byte) (q Request, err error) {
	o, err := conf.Parse(body)
	if err != nil {
		return q, err
	}
	o.String("K8S_POD_NAME", &q.Pod)
	o.String("K8S_POD_NAMESPACE", &q.Namespace)
	o.String("K8S_POD_INFRA_CONTAINER_ID", &q.ContainerID)
	o.String("CNI_NETNS", &q.Netns)
	o.String("CNI_IFNAME", &q.IfName)
	if q.ContainerID == "" || plugin.ValidateName(q.ContainerID) != nil {
		o.Fail("K8S_POD_INFRA_CONTAINER_ID", "the container's id", strconv.Quote(q.ContainerID))
	}
	if link.ValidateName(q.IfName) != nil {
		o.Fail("CNI_IFNAME", "the interface's name", strconv.Quote(q.IfName))
	}
	return q, o.Err()
}

// Response is the body of an answer.
type Response struct {
	Result      int    // 0 if the call succeeded, 1 if contiv's daemon failed; cnibox' agent answers with the code of its CNI error
	EndpointID  string // the container's id
	IPAddress   string // with prefix length, such as 10.88.0.2/16
	IPv6Address string
	ErrMsg      string // what failed
	ErrInfo     string // why, or what to do about it
}

// JSON returns the answer as it is sent.
func (a Response) JSON() []byte {
	o := conf.New()
	o.Set("result", a.Result)
	o.Set("endpointid", a.EndpointID)
	o.Set("ipaddress", a.IPAddress)
	o.Set("ipv6address", a.IPv6Address)
	o.Set("errmsg", a.ErrMsg)
	o.Set("errinfo", a.ErrInfo)
	return o.JSON()
}

// Failure returns the answer that has a CNI error.
func Failure(err error) Response {
	e := plugin.AsError(err)
	return Response{Result: max(int(e.Code), 1), ErrMsg: e.Msg, ErrInfo: e.Details}
}

// ParseResponse reads an answer.
func ParseResponse(body []byte) (a Response, err error) {
	o, err := conf.Parse(body)
	if err != nil {
		return a, err
	}
	o.Int("result", &a.Result)
	o.String("endpointid", &a.EndpointID)
	o.String("ipaddress", &a.IPAddress)
	o.String("ipv6address", &a.IPv6Address)
	o.String("errmsg", &a.ErrMsg)
	o.String("errinfo", &a.ErrInfo)
	if a.Result < 0 {
		o.Fail("result", "a number that is not below 0", strconv.Itoa(a.Result))
	}
	return a, o.Err()
}
