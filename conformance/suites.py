"""Runs a script of tlsfuzzer with an AES-GCM suite in place of CBC and RSA ones.

Most scripts for TLS 1.2 ask for suites of 2008, which Sealane does not have, whatever they test.
"""

import runpy
import sys
from collections import OrderedDict

from tlsfuzzer.expect import ExpectCertificate, ExpectServerHelloDone, ExpectServerKeyExchange
from tlsfuzzer.messages import ClientHelloGenerator
from tlsfuzzer.tree import TreeNode
from tlslite.constants import CipherSuite, ExtensionType, GroupName, SignatureScheme
from tlslite.extensions import SignatureAlgorithmsExtension, SupportedGroupsExtension

REPLACED = (
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
)

for name in REPLACED:
    setattr(CipherSuite, name, CipherSuite.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256)


def adapt():
    """Gives hellos for RSA key exchange the extensions of ECDHE, and awaits its message."""
    begin, add_child = ClientHelloGenerator.__init__, TreeNode.add_child

    def begin_with_groups(self, ciphers=None, extensions=None, **others):
        if others.get("ssl2"):
            return begin(self, ciphers, extensions, **others)
        extensions = OrderedDict(extensions or {})
        groups = SupportedGroupsExtension().create([GroupName.secp256r1])
        extensions.setdefault(ExtensionType.supported_groups, groups)
        schemes = SignatureAlgorithmsExtension().create([SignatureScheme.rsa_pkcs1_sha256])
        extensions.setdefault(ExtensionType.signature_algorithms, schemes)
        return begin(self, ciphers, extensions, **others)

    def add_with_key_exchange(self, child):
        if isinstance(self, ExpectCertificate) and isinstance(child, ExpectServerHelloDone):
            self = add_child(self, ExpectServerKeyExchange())
        return add_child(self, child)

    ClientHelloGenerator.__init__ = begin_with_groups
    TreeNode.add_child = add_with_key_exchange


if sys.argv[1] == "--adapt":
    adapt()
    del sys.argv[1]
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
