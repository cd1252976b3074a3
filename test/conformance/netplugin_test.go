package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// contivSocket is where contiv's daemon listens.
const contivSocket = "/run/contiv/contiv-cni.sock"

// netplugin stands for contiv's daemon on the node: it has its API, and its answers, as it sends them. It wires containers by veth pairs, with
// the host as router.
type netplugin struct {
	*lab
	server   *http.Server
	listener net.Listener

	mu        sync.Mutex
	posts     []post
	endpoints map[string]string // by the container's id, the host end
	handle    http.HandlerFunc  // in place of its own, if set
	keeps     bool              // it says that it does what it is asked for, and does nothing
	refuse    string            // the container that it fails at
	look      func(post)        // is shown each request before it is answered, if set
	after     func()            // is called when a container was wired, if set
}

// post is a request that the daemon has got.
type post struct {
	path, body string
	header     http.Header
	pod        podRequest
}

// podRequest and podResponse are contiv's types.
type podRequest struct {
	Name      string `json:"K8S_POD_NAME,omitempty"`
	Namespace string `json:"K8S_POD_NAMESPACE,omitempty"`
	ID        string `json:"K8S_POD_INFRA_CONTAINER_ID,omitempty"`
	Netns     string `json:"CNI_NETNS,omitempty"`
	IfName    string `json:"CNI_IFNAME,omitempty"`
}

type podResponse struct {
	Result      uint   `json:"result,omitempty"`
	EndpointID  string `json:"endpointid,omitempty"`
	IPAddress   string `json:"ipaddress,omitempty"`
	IPv6Address string `json:"ipv6address,omitempty"`
	ErrMsg      string `json:"errmsg,omitempty"`
	ErrInfo     string `json:"errinfo,omitempty"`
}

// netplugin starts the daemon, which ends with the row. With handle it answers what that does.
func (l *lab) netplugin(handle http.HandlerFunc) *netplugin {
	d := &netplugin{lab: l, endpoints: map[string]string{}, handle: handle}
	d.start()
	l.Cleanup(d.stop)
	return d
}

func (d *netplugin) start() {
	d.listen(func(listener net.Listener) {
		d.server, d.listener = &http.Server{Handler: d}, listener
		go func() { _ = d.server.Serve(listener) }()
	})
}

// listen makes contiv's socket, as contiv does.
func (l *lab) listen(serve func(net.Listener)) {
	l.host.Do(func() {
		_ = os.MkdirAll(filepath.Dir(contivSocket), 0o700)
		_ = os.Remove(contivSocket)
		listener, err := net.Listen("unix", contivSocket)
		if err != nil {
			l.Fatal(err)
		}
		serve(listener)
	})
}

// stop ends the daemon, which takes its socket with it.
func (d *netplugin) stop() {
	d.host.Do(func() { _ = d.listener.Close() })
	_ = d.server.Close()
}

// got returns what the daemon was asked for, such as "ADD web", and forgets it.
func (d *netplugin) got() (list []string) {
	for _, p := range d.requests() {
		list = append(list, map[string]string{"/ContivCNI.AddPod": "ADD ", "/ContivCNI.DelPod": "DEL "}[p.path]+p.pod.ID)
	}
	return list
}

// requests returns the requests that the daemon has got, and forgets them.
func (d *netplugin) requests() []post {
	d.mu.Lock()
	defer d.mu.Unlock()
	posts := d.posts
	d.posts = nil
	return posts
}

// ServeHTTP routes as contiv's daemon does (gorilla/mux, with a matcher for the header).
func (d *netplugin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p := post{path: r.URL.Path, body: string(body), header: r.Header}
	broken := json.Unmarshal(body, &p.pod)
	d.mu.Lock()
	d.posts = append(d.posts, p)
	d.mu.Unlock()
	if d.look != nil {
		d.look(p)
	}
	verb, known := map[string]func(podRequest) (podResponse, error){"/ContivCNI.AddPod": d.addPod, "/ContivCNI.DelPod": d.delPod}[r.URL.Path]
	switch {
	case d.handle != nil:
		d.handle(w, r)
	case !known || r.Method != "POST" || r.Header.Get("Content-Type") != "application/json":
		http.NotFound(w, r)
	case broken != nil:
		d.send(w, 500, podResponse{})
	case p.pod.ID == d.refuse:
		d.send(w, 500, podResponse{Result: 1, ErrMsg: "Error getting labels"})
	default:
		answer, err := verb(p.pod)
		if err != nil {
			d.send(w, 500, answer)
			return
		}
		d.send(w, 200, answer)
	}
}

// send answers as contiv's daemon does, which names the type of what it sends only if all is well.
func (d *netplugin) send(w http.ResponseWriter, code int, answer podResponse) {
	text, _ := json.Marshal(answer)
	if code == 200 {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(code)
	_, _ = w.Write(text)
}

// addPod moves a link by the process id in the path of the namespace, as contiv does.
func (d *netplugin) addPod(q podRequest) (podResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if port := d.endpoints[q.ID]; port != "" && port != "deleted" {
		err := fmt.Errorf("the EP %s already exists", q.ID)
		return podResponse{Result: 1, ErrMsg: "Error creating EP", ErrInfo: "Err: " + err.Error()}, err
	}
	n := len(d.endpoints) + 9
	answer := podResponse{EndpointID: q.ID, IPAddress: fmt.Sprintf("20.1.1.%d/24", n), IPv6Address: fmt.Sprintf("fd20::%d/64", n)}
	if d.keeps {
		return answer, nil
	}
	parts := strings.Split(q.Netns, "/")
	if len(parts) < 3 || parts[1] != "proc" {
		err := fmt.Errorf("invalid nw name space: %s", q.Netns)
		return podResponse{Result: 1, ErrMsg: "Error moving to netns", ErrInfo: "Err: " + err.Error()}, err
	}
	pid, port := parts[2], fmt.Sprintf("vport%d", n)
	inside := "nsenter -t " + pid + " -n ip "
	for _, command := range []string{
		"ip link add " + port + " type veth peer name " + port + "p",
		"ip link set " + port + "p netns " + pid,
		inside + "link set " + port + "p name " + q.IfName,
		inside + "address add " + answer.IPAddress + " dev " + q.IfName,
		inside + "address add " + answer.IPv6Address + " dev " + q.IfName + " nodad",
		inside + "link set " + q.IfName + " up",
		"ip link set " + port + " up",
		"ip address add 20.1.1.1/32 dev " + port,
		"ip route add " + strings.TrimSuffix(answer.IPAddress, "/24") + " dev " + port,
		inside + "route append default via 20.1.1.1 dev " + q.IfName,
		inside + "-6 route append default via fd20::1 dev " + q.IfName,
		inside + "route append 10.60.0.0/16 via 20.1.1.2 dev " + q.IfName,
	} {
		words := strings.Fields(command)
		if out, err := d.host.Output(d.host.Command(words[0], words[1:]...)); err != nil {
			return podResponse{Result: 1, ErrMsg: "Error setting interface attributes", ErrInfo: "Err: " + command + ": " + err.Error() + out}, err
		}
	}
	d.endpoints[q.ID] = port
	if d.after != nil {
		d.after()
	}
	return answer, nil
}

func (d *netplugin) delPod(q podRequest) (podResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if port := d.endpoints[q.ID]; port != "" {
		_, _ = d.host.Output(d.host.Command("ip", "link", "del", port))
		d.endpoints[q.ID] = "deleted"
	}
	return podResponse{EndpointID: q.ID}, nil
}
