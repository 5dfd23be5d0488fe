"""Starts ministack with what its services lack here: ministack-server.py PARAMETERS CLUSTERS

AWS alone writes below /aws/service, and ministack refuses it as AWS does. It has public parameters of its own; those of
the file PARAMETERS, names with their values, are added to them.

EKS's API servers are containers in ministack, which this machine doesn't run. If the folder CLUSTERS has a file
`NAME.json`, DescribeCluster tells of the cluster NAME what is there, such as the endpoint of an API server of a test.
"""

import json
import pathlib
import sys

from ministack.app import main
from ministack.services import eks, ssm

CLUSTERS = pathlib.Path(sys.argv.pop(2))
with open(sys.argv.pop(1), encoding="utf-8") as file:
    ssm._PUBLIC_AMI_PARAMETERS.update(json.load(file))


def merge(known, more):
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(known.get(key), dict):
            merge(known[key], value)
        else:
            known[key] = value


def describe_cluster(name, described=eks._describe_cluster):
    status, headers, body = described(name)
    told = CLUSTERS / f"{name}.json"
    if status == 200 and told.exists():
        answer = json.loads(body)
        merge(answer["cluster"], json.loads(told.read_text(encoding="utf-8")))
        body = json.dumps(answer).encode()
    return status, headers, body


eks._describe_cluster = describe_cluster
main()
