package doctor

import (
	"context"
	"slices"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/repair"
)

// check is a look at one part of the node.
type check struct {
	at    string // what it looks at, for people
	codes finding.Codes
	look  func(ctx context.Context, s *subject) ([]Finding, error)
}

func (c check) isWanted(o Options) bool {
	if o.Codes == nil {
		return o.Thorough || c.at != byCheck && c.at != byPackets
	}
	return slices.ContainsFunc(c.codes, func(code *finding.Code) bool { return slices.Contains(o.Codes, code.Name) })
}

// The checks that cost a call for each attachment, and a packet for each network.
const (
	byCheck   = "attachments, by CHECK"
	byPackets = "packets of containers"
)

// checks are all of them. Those that explain what others would only notice come first.
var checks = []check{
	{"files of networks", finding.Codes{networkFileBroken, networkNameTwice, networkOrder}, checkNetworkFiles},
	{"directory of networks", finding.Codes{confDirReplaced}, checkConfDir},
	{"files of plugins", finding.Codes{pluginMissing, pluginNoExec, pluginNotExecutable, pluginForeign, pluginShadowed, pluginAlone, pluginWrongName, pluginOneFile, pluginFiles}, checkPlugins},
	{"directories of plugins", finding.Codes{pluginHalfUpdated}, checkPluginDirs},
	{"loopback of pods", finding.Codes{loopbackByPlugin}, checkLoopback},
	{"features of the kernel", finding.Codes{kernelFeatureMissing, kernelUnusedFeatures}, checkKernel},
	{"directories of state", finding.Codes{stateReadOnly, stateFull}, checkState},
	{"sysctls", finding.Codes{sysctlsReadOnly}, checkSysctls},
	{"DHCP daemon", finding.Codes{dhcpDaemonDown}, checkDHCP},
	{"addresses in etcd", finding.Codes{etcdUnreachable, etcdHostNameTaken, etcdAddressLost, etcdLeaseNotRenewed, etcdNotTold}, checkEtcd},
	{"files of flannel's daemon", finding.Codes{subnetEnvMissing, subnetEnvTorn}, checkSubnetFiles},
	{"addresses of containers", finding.Codes{addressTwice, leaseLost}, checkAddresses},
	{"addresses of bridges", finding.Codes{bridgeOtherSubnet, gatewayGone}, checkGateways},
	{"names of containers", finding.Codes{namesUnanswered, namesAnsweredByOther}, checkNames},
	{"DNS servers of containers", finding.Codes{namesNotAsked}, checkResolvConf},
	{"subnets", finding.Codes{subnetsOverlap}, checkSubnets},
	{"readiness of networks, by STATUS", finding.Codes{networkNotReady, kernelFeatureMissing}, checkStatus},
	{"backends", finding.Codes{backendOf, ipvsNftables}, checkBackends},
	{"forwarding", finding.Codes{forwardingOff, rpFilterStrict}, checkForwarding},
	{"sysctls at the next boot", finding.Codes{forwardingOffAtBoot}, checkBoot},
	{"IPv6", finding.Codes{ipv6Off}, checkIPv6},
	{"bridged packets", finding.Codes{bridgeNFOff}, checkBridgedPackets},
	{"firewalld", finding.Codes{firewalldSourcesLost}, checkFirewalld},
	{"rules of attachments", finding.Codes{rulesGone}, checkRules},
	{"what containers may reach", finding.Codes{listsOlder}, checkLists},
	{"links", finding.Codes{bridgeDown, masterDown, bridgePortLost, bridgeNearlyFull, mtuAboveUplink}, checkLinks},
	{"managers of links", finding.Codes{networkdTakesLinks, networkManagerTakesLinks}, checkManagers},
	{"routes and rules of others", finding.Codes{networkdTakesRoutes}, checkForeign},
	{"pools", finding.Codes{poolNearlyFull}, checkPools},
	{"tracked connections", finding.Codes{connectionsNearlyFull}, checkConnections},
	{"caches of results", finding.Codes{cacheTorn, networkInTwoCaches}, checkCaches},
	{"leftovers, by gc", finding.Codes{leftovers, gcStopped}, checkLeftovers},
	{"deletions", finding.Codes{delNotEnded}, checkDeletions},
	{byPackets, finding.Codes{forwardDrops, dockerDrops, ufwDrops, firewalldNoZone, packetLost}, checkPackets},
	{byCheck, finding.Codes{listsGone, repair.Broken, repair.Older, repair.Changed}, checkAttachments},
}
