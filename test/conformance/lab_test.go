package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/test/netlab"
)

// lab is what a row works with: a node that has the suite's plugins, and the testing.TB that its failures go to.
type lab struct {
	*judge
	suite *suite
	host  *netlab.Host
	// backend is the backend that the row is tried with; empty is to leave it to the plugin.
	backend string
	out     *netlab.Outside
	far     map[string]*container // the machines that the node's devices are wired to
}

func newLab(j *judge, s *suite) *lab {
	l := &lab{judge: j, suite: s, host: netlab.NewHost(j), far: map[string]*container{}}
	programs, err := os.ReadDir(s.dir)
	if err != nil || len(programs) == 0 {
		l.Fatalf("no plugins in %s: %v", s.dir, err)
	}
	var names []string
	for _, p := range programs {
		names = append(names, p.Name())
	}
	l.host.InstallFrom(l, s.dir, names...)
	if s.limit > 0 {
		l.endAfter(s.limit)
	}
	if *agentFlag {
		l.startAgent()
	}
	return l
}

// endAfter fails a row that takes longer, and kills what runs on the node then and later: a plugin that never ends would keep all rows from their end.
func (l *lab) endAfter(limit time.Duration) {
	done := make(chan struct{})
	l.Cleanup(func() { close(done) })
	go func() {
		for wait := limit; ; wait = time.Second {
			select {
			case <-done:
				return
			case <-time.After(wait):
				if wait == limit {
					l.Errorf("it takes longer than %v: what ran was killed", limit)
				}
				l.host.Kill()
			}
		}
	}()
}

// startAgent starts an agent on the node, and waits until it is ready. It looks at everything every second.
func (l *lab) startAgent() {
	cmd := l.host.Command(netlab.Cnictl(l), "agent", "--every", "1s", "--grace", "1s")
	log, err := os.CreateTemp(l.TempDir(), "agent-*.log")
	if err != nil {
		l.Fatal(err)
	}
	cmd.Stderr = log
	l.Cleanup(func() {
		text, err := os.ReadFile(log.Name())
		if err = errors.Join(err, log.Close()); err != nil {
			l.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "put back") || strings.Contains(line, "msg=collected") || strings.Contains(line, "level=ERROR") {
				l.TB.Logf("the agent: %s", line)
			}
		}
	})
	l.host.Background(l, cmd)
	ready := func() bool {
		text, _ := os.ReadFile(log.Name())
		return strings.Contains(string(text), "msg=ready")
	}
	netlab.Until(l, "the agent to be ready", ready)
}

// outside returns the machine on the other end of the node's uplink.
func (l *lab) outside() *netlab.Outside {
	if l.out == nil {
		l.out = l.host.NewOutside(l)
	}
	return l.out
}

// run runs programs on the node, each written as on a command line without quotes, and returns what they print.
func (l *lab) run(commands ...string) string { return run(l, &l.host.Namespace, commands...) }

// run has one ip do all the commands that follow each other and are ip's: processes are what is dear in a row.
func run(l *lab, n *netlab.Namespace, commands ...string) (printed string) {
	for len(commands) > 0 {
		batch := ""
		for len(commands) > 1 || batch != "" && len(commands) > 0 {
			own, ok := strings.CutPrefix(commands[0], "ip ")
			if !ok || strings.HasPrefix(own, "-") {
				break
			}
			batch += own + "\n"
			commands = commands[1:]
		}
		if batch != "" {
			printed += n.Feed(l, batch, "ip", "-batch", "-")
			continue
		}
		words := strings.Fields(commands[0])
		printed += n.MustRun(l, words[0], words[1:]...)
		commands = commands[1:]
	}
	return printed
}

// write writes a file of the node: in /run, /etc/cni, /opt/cni or /var/lib/cni, which are its own.
func (l *lab) write(path, content string) {
	l.host.Do(func() {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			l.Fatal(err)
		}
	})
}

// read returns the content of a file of the node, and "" if there is none.
func (l *lab) read(path string) (content string) {
	l.host.Do(func() {
		b, _ := os.ReadFile(path)
		content = string(b)
	})
	return content
}

// remove removes files of the node, and directories with all that is in them. They must be there.
func (l *lab) remove(paths ...string) {
	for _, path := range paths {
		if len(l.files(path)) == 0 {
			l.Fatalf("there is no %s", path)
		}
		l.clear(path)
	}
}

// clear is remove for what need not be there.
func (l *lab) clear(path string) {
	l.host.Do(func() { l.must(os.RemoveAll(path)) })
}

// files returns the names of the node's files that match a pattern, sorted.
func (l *lab) files(pattern string) (names []string) {
	l.host.Do(func() { names, _ = filepath.Glob(pattern) })
	return names
}

// network is a network configuration: a conflist with its plugins as JSON objects.
type network struct {
	name, version string
	plugins       []string
}

// conf returns the network lan with these plugins, of a version that all collections know.
func conf(plugins ...string) network { return network{name: "lan", version: "1.0.0", plugins: plugins} }

// called returns the network under another name.
func (n network) called(name string) network {
	n.name = name
	return n
}

// in returns the network in another version of the CNI specification.
func (n network) in(version string) network {
	n.version = version
	return n
}

// list returns the network as a conflist. Chained, it has one entry.
func (n network) list(chained bool) string {
	plugins := strings.Join(n.plugins, ",")
	if chained {
		capabilities := map[string]any{}
		for _, p := range n.plugins {
			if c, ok := object(p)["capabilities"].(map[string]any); ok {
				maps.Copy(capabilities, c)
			}
		}
		plugins = fmt.Sprintf(`{"type":"chain","capabilities":%s,"plugins":[%s]}`, text(capabilities), plugins)
	}
	return fmt.Sprintf(`{"cniVersion":%q,"name":%q,"plugins":[%s]}`, n.version, n.name, plugins)
}

// object decodes a JSON object; nil if the text is none.
func object(text string) map[string]any {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var o map[string]any
	if decoder.Decode(&o) != nil {
		return nil
	}
	return o
}

func text(value any) string {
	out, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// with returns a JSON object with more keys, each followed by its value in JSON.
func with(config string, keysAndValues ...string) string {
	o := object(config)
	for i := 0; i < len(keysAndValues); i += 2 {
		o[keysAndValues[i]] = json.RawMessage(keysAndValues[i+1])
	}
	return text(o)
}

// container is a pod and its attachment to a network, as the runtime knows it.
type container struct {
	*netlab.Pod
	lab     *lab
	network network
	runtime *libcni.RuntimeConf
	printed string           // by the last plugin of ADD
	result  *types100.Result // the same, in the newest version
	v4, v6  string           // its first addresses
}

// pod makes a pod that nothing has been done to.
func (l *lab) pod(name string) *container {
	p := l.host.NewPod(l, name)
	return &container{Pod: p, lab: l, runtime: p.RuntimeConf(nil)}
}

// another is the same container, for another attachment.
func (c *container) another() *container {
	return &container{Pod: c.Pod, lab: c.lab, runtime: c.RuntimeConf(nil)}
}

// run runs programs in the container, each written as on a command line without quotes, and returns what they print.
func (c *container) run(commands ...string) string { return run(c.lab, &c.Namespace, commands...) }

// attach attaches the container once more, as an interface of another name, which must succeed.
func (c *container) attach(n network, name string) *container {
	other := c.another()
	c.lab.must(other.add(n, ifname(name)))
	return other
}

// never is a pod that is not attached to a network, as which calls take it all the same.
func (l *lab) never(n network, name string) *container {
	c := l.pod(name)
	c.network = n
	return c
}

// Option changes what a runtime sends.
type option func(*libcni.RuntimeConf)

// capability has the runtime send one in runtimeConfig, with its value in JSON, to the plugins that declare it.
func capability(name, value string) option {
	return func(rt *libcni.RuntimeConf) {
		if rt.CapabilityArgs == nil {
			rt.CapabilityArgs = map[string]any{}
		}
		rt.CapabilityArgs[name] = json.RawMessage(value)
	}
}

// args has the runtime send CNI_ARGS, written as KEY=VALUE.
func args(pairs ...string) option {
	return func(rt *libcni.RuntimeConf) {
		for _, p := range pairs {
			key, value, _ := strings.Cut(p, "=")
			rt.Args = append(rt.Args, [2]string{key, value})
		}
	}
}

// ifname has the runtime ask for another interface name than eth0.
func ifname(name string) option { return func(rt *libcni.RuntimeConf) { rt.IfName = name } }

// portMap matches [hostIP:]hostPort:containerPort/protocol, with an IPv6 hostIP in brackets.
var portMap = regexp.MustCompile(`^(?:\[?([^\]]*?)\]?:)?(\d+):(\d+)/(\w+)$`)

// ports is the capability of published ports, written as portMap says.
func ports(maps ...string) option {
	var list []string
	for _, m := range maps {
		part := portMap.FindStringSubmatch(m)
		list = append(list, fmt.Sprintf(`{"hostIP":%q,"hostPort":%s,"containerPort":%s,"protocol":%q}`, part[1], part[2], part[3], part[4]))
	}
	return capability("portMappings", "["+strings.Join(list, ",")+"]")
}

// attach makes a pod and attaches it, which must succeed.
func (l *lab) attach(n network, name string, options ...option) *container {
	c := l.pod(name)
	l.must(c.add(n, options...))
	return c
}

// must ends the row when a call failed.
func (l *lab) must(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		l.Fatal(err)
	}
}

// add attaches the container to a network, through libcni.
func (c *container) add(n network, options ...option) error {
	c.network = n
	for _, o := range options {
		o(c.runtime)
	}
	return c.call(func(ctx context.Context, cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		_, err := cni.AddNetworkList(ctx, list, c.runtime)
		if err == nil {
			c.learn()
		}
		return err
	})
}

// learn reads the result of ADD.
func (c *container) learn() {
	c.result, c.v4, c.v6 = c.lab.result(c.printed), "", ""
	v4, v6 := netlab.Addresses(c.result)
	if v4.IsValid() {
		c.v4 = v4.String()
	}
	if v6.IsValid() {
		c.v6 = v6.String()
	}
}

// check and del call the verb for the attachment, through libcni.
func (c *container) check() error {
	return c.call(func(ctx context.Context, cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return cni.CheckNetworkList(ctx, list, c.runtime)
	})
}

func (c *container) del() error {
	return c.call(func(ctx context.Context, cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return cni.DelNetworkList(ctx, list, c.runtime)
	})
}

// status asks whether a network is ready.
func (l *lab) status(n network) error {
	c := &container{lab: l, network: n.in("1.1.0")}
	return c.call(func(ctx context.Context, cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return cni.GetStatusNetworkList(ctx, list)
	})
}

// call has libcni call the plugins of the container's network.
func (c *container) call(use func(context.Context, *libcni.CNIConfig, *libcni.NetworkConfigList) error) (err error) {
	list, err := libcni.NetworkConfFromBytes([]byte(c.network.list(c.lab.suite.chained)))
	if err != nil {
		c.lab.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*netlab.Patience) // a guest loads the packet filter's modules in the first call that needs them, and is slow
	defer cancel()
	c.lab.host.Do(func() {
		cni := libcni.NewCNIConfigWithCacheDir([]string{netlab.PluginDir}, netlab.CacheDir, &listener{Exec: c.lab.host.Executor(), heard: &c.printed})
		err = use(ctx, cni, list)
	})
	return err
}

// forget removes what libcni remembers of attachments, as on a node that has lost its cache.
func (l *lab) forget() { l.clear(netlab.CacheDir + "/results") }

// listener runs plugins and keeps what the last one printed.
type listener struct {
	invoke.Exec
	heard *string
}

func (e *listener) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	out, err := e.Exec.ExecPlugin(ctx, path, stdin, environ)
	if err == nil && len(out) > 0 {
		*e.heard = string(out)
	}
	return out, err
}

// result decodes a result of any version.
func (l *lab) result(printed string) *types100.Result {
	return netlab.PluginResult{Stdout: printed}.Result(l)
}

// change changes what a plugin is called with.
type change = func(*netlab.PluginCall)

// noNetns, env and argsOf are changes.
func noNetns(call *netlab.PluginCall) { call.Netns = "" }

func env(variables ...string) change {
	return func(call *netlab.PluginCall) { call.Env = append(call.Env, variables...) }
}

// exec runs the plugin that a configuration names, as a runtime without libcni: what it prints, and its error. The
// configuration gets the name and the version of conf if it has none. In a suite of chains the plugin runs as one entry of a
// list.
func (l *lab) exec(verb string, c *container, config string, changes ...change) (string, error) {
	r := l.process(verb, c, config, changes...)
	return r.Stdout, failure(r)
}

// verb is exec for a call that is looked at for its error alone.
func (l *lab) verb(verb string, c *container, config string, changes ...change) error {
	return failure(l.process(verb, c, config, changes...))
}

// answer is exec for a call that must succeed: what it prints.
func (l *lab) answer(verb string, c *container, config string, changes ...change) string {
	printed, err := l.exec(verb, c, config, changes...)
	l.must(err)
	return printed
}

// overtake has the container end without DEL, and another one be attached by the plugins of a list that has the path of its namespace.
func (c *container) overtake(plugins ...string) {
	c.lab.Helper()
	c.Replace(c.lab)
	printed := ""
	for _, config := range plugins {
		if printed != "" {
			config = with(config, "prevResult", printed)
		}
		var err error
		printed, err = c.lab.exec("ADD", c, config, func(call *netlab.PluginCall) { call.ContainerID = "newer" })
		c.lab.must(err)
	}
}

// process is exec for rows that look at all that a process answers.
func (l *lab) process(verb string, c *container, config string, changes ...change) netlab.PluginResult {
	plugin, call := l.prepare(verb, c, config, changes...)
	return l.host.Exec(l, plugin, call)
}

// prepare returns the plugin that exec runs, and what it is given.
func (l *lab) prepare(verb string, c *container, config string, changes ...change) (plugin string, call netlab.PluginCall) {
	plugin, config = l.complete(config)
	call = netlab.PluginCall{Command: verb, Path: netlab.PluginDir, Config: config}
	if verb == "ADD" || verb == "DEL" || verb == "CHECK" {
		call = c.Call(verb, config)
		call.IfName = c.runtime.IfName
	}
	for _, change := range changes {
		change(&call)
	}
	return plugin, call
}

// failure returns the error of a plugin that failed.
func failure(r netlab.PluginResult) error {
	switch {
	case r.ExitCode == 0:
		return nil
	case r.Error == nil:
		return fmt.Errorf("no error document: %s", r)
	}
	return &types.Error{Code: r.Error.Code, Msg: r.Error.Msg, Details: r.Error.Details}
}

// complete returns the plugin to run for a configuration, and the configuration for it.
func (l *lab) complete(config string) (plugin, complete string) {
	o := object(config)
	if o == nil {
		l.Fatalf("no configuration: %s", config)
	}
	for key, value := range map[string]string{"name": "lan", "cniVersion": "1.0.0"} {
		if _, ok := o[key]; !ok {
			o[key] = value
		}
	}
	plugin, _ = o["type"].(string)
	switch {
	case !l.suite.chained || plugin == "chain":
	case plugin == "host-local" || plugin == "static" || plugin == "dhcp":
		l.foreign("other plugins call it: it is no entry of a list")
	default:
		plugin, o = "chain", chained(o)
	}
	return plugin, text(o)
}

// chained returns a plugin's configuration as a list of one.
func chained(plugin map[string]any) map[string]any {
	list := map[string]any{"type": "chain", "plugins": []any{plugin}}
	for _, key := range []string{"name", "cniVersion", "prevResult", "runtimeConfig", "cni.dev/valid-attachments", "cni.dev/attachments"} {
		if value, ok := plugin[key]; ok {
			list[key] = value
			delete(plugin, key)
		}
	}
	capabilities, _ := plugin["capabilities"].(map[string]any)
	if runtime, ok := list["runtimeConfig"].(map[string]any); ok {
		for key := range runtime {
			if capabilities == nil {
				capabilities = map[string]any{}
			}
			capabilities[key] = true
		}
	}
	if capabilities != nil {
		list["capabilities"], plugin["capabilities"] = capabilities, capabilities
	}
	return list
}

// delBare calls DEL with as little as a runtime may send: no namespace, no result, no runtimeConfig.
func (c *container) delBare() error {
	return c.lab.each("DEL", c, c.network, noNetns)
}

// gc calls GC of a network's plugins with the attachments that are valid, without what libcni does besides.
func (l *lab) gc(n network, valid ...*container) error {
	list := []any{}
	for _, c := range valid {
		list = append(list, map[string]string{"containerID": c.ID, "ifname": c.runtime.IfName})
	}
	return l.each("GC", nil, n.in("1.1.0"), func(call *netlab.PluginCall) {
		call.Config = with(call.Config.(string), "cni.dev/valid-attachments", text(list))
	})
}

// each calls a verb of a network's plugins, the last one first if it is DEL, and all of them whatever they answer.
func (l *lab) each(verb string, c *container, n network, changes ...change) (err error) {
	plugins := slices.Clone(n.plugins)
	if l.suite.chained {
		plugins = []string{text(object(n.list(true))["plugins"].([]any)[0])}
	}
	if verb == "DEL" {
		slices.Reverse(plugins)
	}
	for _, p := range plugins {
		_, failed := l.exec(verb, c, with(p, "name", text(n.name), "cniVersion", text(n.version)), changes...)
		err = errors.Join(err, failed)
	}
	return err
}

// refused makes sure that a call failed with an error that names all parts.
func (l *lab) refused(err error, parts ...string) {
	if err == nil {
		l.Error("it succeeded")
		return
	}
	for _, part := range parts {
		if !strings.Contains(full(err), part) {
			l.Errorf("the error does not name %q: %s", part, full(err))
		}
	}
}

// code makes sure that a call failed with an error of this code, a message, and details that say more, which names all parts.
func (l *lab) code(err error, code uint, parts ...string) {
	var e *types.Error
	switch {
	case !errors.As(err, &e):
		l.Errorf("want an error of code %d, got %v", code, err)
	case e.Code != code || e.Msg == "" || e.Details == "":
		l.Errorf("want an error of code %d with details, got %d: %s; %s", code, e.Code, e.Msg, e.Details)
	}
	if err != nil {
		l.refused(err, parts...)
	}
}

// full returns all text of an error.
func full(err error) string {
	var e *types.Error
	if errors.As(err, &e) {
		return err.Error() + "; " + e.Details
	}
	return err.Error()
}

// addr parses an address.
func addr(text string) netip.Addr { return netip.MustParseAddr(text) }
