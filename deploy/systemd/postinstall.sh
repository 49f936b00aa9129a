#!/bin/sh
# The user that the services run as. Nothing is started: a cluster is upgraded one
# machine after the other, and when is the administrator's to say.
set -e
if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers /usr/lib/sysusers.d/ulisse.conf
elif ! getent passwd ulisse >/dev/null; then
  useradd --system --home-dir /var/lib/ulisse --shell /usr/sbin/nologin ulisse
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
