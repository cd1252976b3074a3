package trace

import "testing"

func TestOwnerOf(t *testing.T) {
	for _, c := range []struct {
		table, chain string
		want         Owner
	}{
		{"filter", "FORWARD", Administrator}, {"filter", "DOCKER-ISOLATION-STAGE-1", Docker}, {"filter", "ufw-user-forward", UFW}, {"filter", "ufw6-before-input", UFW},
		{"firewalld", "filter_FORWARD", Firewalld}, {"mine", "filter_mine", Administrator}, {"filter", "FWD_public_deny", Firewalld}, {"filter", "KUBE-FIREWALL", KubeProxy},
		{"kube-proxy", "filter-forward", KubeProxy}, {"cnibox-egress", "judge_v1", Ours}, {"filter", "CNI-FORWARD", Ours}, {"filter", "cali-FORWARD", "calico"}, {"inet", "mine", Administrator},
	} {
		if got := ownerOf(c.table, c.chain); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.table, c.chain, got, c.want)
		}
	}
}

func TestOwnerOfPolicy(t *testing.T) {
	for _, c := range []struct {
		chain  string
		beside []string
		want   Owner
	}{
		{"FORWARD", nil, Administrator}, {"FORWARD", []string{"DOCKER-USER"}, Docker}, {"INPUT", []string{"DOCKER-USER"}, Administrator},
		{"INPUT", []string{"ufw-before-input", "DOCKER"}, UFW}, {"FORWARD", []string{"DOCKER", "ufw-before-forward"}, UFW},
	} {
		if got := ownerOfPolicy("filter", c.chain, c.beside); got != c.want {
			t.Errorf("%s beside %v: %s, want %s", c.chain, c.beside, got, c.want)
		}
	}
}
