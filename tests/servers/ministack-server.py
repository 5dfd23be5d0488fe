"""Starts ministack with AWS's public parameters of EKS's images: ministack-server.py PARAMETERS

AWS alone writes below /aws/service, and ministack refuses it as AWS does. It has public parameters of its own; those of
the file, names with their values, are added to them.
"""

import json
import sys

from ministack.app import main
from ministack.services import ssm

with open(sys.argv.pop(1), encoding="utf-8") as file:
    ssm._PUBLIC_AMI_PARAMETERS.update(json.load(file))
main()
