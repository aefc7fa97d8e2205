"""Runs a script of tlsfuzzer with an AES-GCM suite in place of CBC and RSA ones.

Most scripts for TLS 1.2 ask for suites of 2008, which Sealane does not have, whatever they test.
"""

import runpy
import sys

from tlslite.constants import CipherSuite

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
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
