# The certificate of a registry, for containerd and for everything else on the node.
if command -v update-ca-certificates >/dev/null; then
  registry_certificates=/usr/local/share/ca-certificates
  _registry_trust() { update-ca-certificates; }
elif command -v update-ca-trust >/dev/null; then
  registry_certificates=/etc/pki/ca-trust/source/anchors
  _registry_trust() { update-ca-trust extract; }
else
  bb-log-error "Neither update-ca-certificates nor update-ca-trust is here: the certificate of @NAME@ is not trusted"
  exit 1
fi
_registry_certificate_changed() {
  _registry_trust
  # containerd reads the trusted certificates when it starts.
  bb-flag-set containerd-need-restart
}
bb-event-on '@NAME@-certificate-changed' '_registry_certificate_changed'

mkdir -p "$registry_certificates"
bb-sync-file "$registry_certificates/@NAME@.crt" - @NAME@-certificate-changed <<"EOF"
@CERTIFICATE@
EOF
