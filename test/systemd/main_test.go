// Package systemd tries the units of dist/systemd under a systemd. That manages the machine that it runs on, so it gets one of its own: the tests
// start themselves again in user-mode-linux (scripts/guest.sh), where all that is written is lost.
//
//	go test ./test/systemd # some minutes
package systemd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) {
	if !isGuest() {
		os.Exit(runInGuest())
	}
	if err := boot(); err != nil {
		log, _ := os.ReadFile("/run/systemd.log")
		fmt.Printf("boot systemd: %v\n%s\n", err, log)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// isGuest reports whether this machine may be changed: by its processor, since no variable that somebody may have set is safe enough.
func isGuest() bool {
	cpu, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && bytes.Contains(cpu, []byte("User Mode Linux"))
}

func runInGuest() int {
	dir := os.Getenv("CNIBOX_BIN_DIR")
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "cnibox-systemd-"); err != nil {
			fmt.Println(err)
			return 1
		}
		defer os.RemoveAll(dir)
		build := exec.Command("go", "build", "-o", dir+"/", "../../cmd/cnibox", "../../cmd/cnibox-etcd", "../../cmd/cnictl")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Printf("build: %v\n%s", err, out)
			return 1
		}
	}
	cmd := exec.Command("../../scripts/guest.sh", append([]string{"uml", os.Args[0]}, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), "CNIBOX_BIN_DIR="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Println(err)
	}
	return cmd.ProcessState.ExitCode()
}

// Where the guest has what is tried.
const (
	units = "/run/units"
	tool  = "/usr/local/bin/cnictl"
	said  = "/run/said.log" // what services print on standard error
)

// first is the first process of systemd's namespaces. It can write no files but the guest's, and has no units but those that are written for it. What
// is mounted is seen by services, as on a machine: systemd takes care of that only where it is not in a container.
const first = `set -e
mount --make-rprivate /
findmnt -rn -o TARGET -t hostfs -O rw | while read -r at; do umount -l "$at"; done
mount -t proc proc /proc
umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /etc/systemd/system
mount --make-rshared /
mkdir /etc/systemd/system/service.d
printf '[Service]\nStandardError=append:%s\n' ` + said + ` >/etc/systemd/system/service.d/said.conf
export container=test SYSTEMD_UNIT_PATH=/etc/systemd/system:` + units + `
exec /lib/systemd/systemd --unit=test.target --log-target=console --log-level=notice --show-status=0`

// pid is systemd's.
var pid string

func boot() error {
	if err := writeUnits(); err != nil {
		return err
	}
	script := `mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null; mkdir -p /sys/fs/cgroup/test
		echo $$ >/sys/fs/cgroup/test/cgroup.procs; exec unshare -m -p -f -C -u -i sh -c "$0" >/run/systemd.log 2>&1`
	systemd := exec.Command("sh", "-c", script, first)
	if err := systemd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- systemd.Wait() }()
	for ; ; netlab.Pause(200 * time.Millisecond) { // on a busy machine it takes minutes
		select {
		case err := <-ended:
			return fmt.Errorf("it has ended: %w", err)
		default:
		}
		found, _ := exec.Command("pgrep", "-x", "systemd").Output()
		if pid = strings.TrimSpace(string(found)); pid == "" {
			continue
		}
		if _, err := inside("systemctl is-active test.target"); err == nil {
			return nil
		}
	}
}

// inside runs a shell's script beside systemd.
func inside(script string) (printed string, err error) {
	out, err := exec.Command("nsenter", "-t", pid, "-a", "bash", "-c", script).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", script, err, out)
	}
	return string(out), err
}

// writeUnits writes what systemd has: our units, D-Bus, services that stand for others, and targets.
func writeUnits() error {
	files := map[string]string{
		"test.target": "[Unit]\nDefaultDependencies=no\n",
		"dbus.socket": "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
		"dbus.service": "[Unit]\nDefaultDependencies=no\nRequires=dbus.socket\n[Service]\nType=notify\n" +
			"ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation\n",
		"nftables.service": noting("nftables", true),
		"ufw.service":      noting("ufw", false),
	}
	for _, name := range []string{"basic", "sysinit", "shutdown", "sockets", "timers", "network", "multi-user"} {
		files[name+".target"] = "[Unit]\nDefaultDependencies=no\n"
	}
	ours, err := filepath.Glob("../../dist/systemd/cnibox-*")
	if err != nil {
		return err
	}
	firewalld := "/lib/systemd/system/firewalld.service"
	for _, path := range append(ours, firewalld) {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files[filepath.Base(path)] = string(text)
	}
	if err := os.Mkdir(units, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(units, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// noting returns a service of the form of a distribution's, which notes what it is asked for. The reload takes some time.
func noting(name string, reloads bool) string {
	text := "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nRemainAfterExit=yes\n"
	for _, verb := range []string{"Start", "Stop"} {
		text += fmt.Sprintf("Exec%s=sh -c 'sleep 0.2; echo %s %s >>%s'\n", verb, name, strings.ToLower(verb), notes)
	}
	if reloads {
		text += fmt.Sprintf("ExecReload=sh -c 'sleep 0.5; echo %s reload >>%s'\n", name, notes)
	}
	return text
}
