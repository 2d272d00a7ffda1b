"""Makes the bucket that is named on the command line, unless it is there. The store: AWS_ENDPOINT_URL_S3."""

import sys

import boto3

s3 = boto3.client("s3")
if sys.argv[1] not in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]:
    s3.create_bucket(Bucket=sys.argv[1])
