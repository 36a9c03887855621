#!/bin/sh
# A machine that is off is still paid for here. At the end of its time it deletes itself when it was given a token, and is off otherwise.
umask 077
cat >/usr/local/sbin/fleet-end <<'SCRIPT'
#!/bin/sh
token='${token}'
[ -z "$token" ] || curl -fsS --retry 5 -X DELETE -H "Authorization: Bearer $token" "${machines}/$(curl -fsS '${self}')"
systemctl poweroff
SCRIPT
chmod 700 /usr/local/sbin/fleet-end
printf '[Service]\nType=oneshot\nExecStart=/usr/local/sbin/fleet-end\n' >/etc/systemd/system/fleet-end.service
# An hour by the clock, which also holds after a restart.
printf '[Timer]\nOnCalendar=%s\nPersistent=true\n[Install]\nWantedBy=timers.target\n' \
  "$(date -u -d '+${hours} hours' '+%Y-%m-%d %H:%M:%S UTC')" >/etc/systemd/system/fleet-end.timer
systemctl daemon-reload
systemctl enable --now fleet-end.timer
%{ if filter != "" ~}

cat >/etc/nftables.conf <<'RULES'
#!/usr/sbin/nft -f
flush ruleset
table inet fleet {
  chain input {
    type filter hook input priority 0; policy accept;
    ct state established,related accept
    ip saddr 10.77.0.0/16 jump private
  }
  chain private {
${filter}
    icmp type echo-request accept
    drop
  }
}
RULES
command -v nft >/dev/null || { apt-get update -qq && apt-get install -y -qq nftables; }
systemctl enable nftables
nft -f /etc/nftables.conf
%{ endif ~}
