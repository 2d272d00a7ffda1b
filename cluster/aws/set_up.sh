#!/bin/sh
# Prepares an AWS account for ray-aws.yaml, and writes dist/ray-aws.yaml, which has nothing left to fill in.
#
#   cluster/aws/set_up.sh ADDRESSES [BUCKET]    # such as 203.0.113.7/32: who may reach the machines by SSH
#
# It uses the command `aws` with your credentials and region, and two zones of the default VPC that have the
# workers' machines. In the clone, after `make setup`. A second call changes what is there.
set -eu
ssh_from=${1:?"usage: set_up.sh ADDRESSES [BUCKET]"} bucket=${2:-}
cd "$(dirname "$0")/../.."
region=${AWS_REGION:-$(aws configure get region)}
export AWS_REGION="$region" AWS_DEFAULT_REGION="$region"

machine=$(sed -n 's/^ *InstanceType: \(g[^ ]*\).*/\1/p' cluster/ray-aws.yaml)
zones=$(aws ec2 describe-instance-type-offerings --location-type availability-zone \
  --filters "Name=instance-type,Values=$machine" --query 'InstanceTypeOfferings[].Location' --output text | tr -s '\t\n ' ,)
network=$(aws ec2 describe-vpcs --filters Name=is-default,Values=true --query 'Vpcs[0].VpcId' --output text)
subnets=$(aws ec2 describe-subnets \
  --filters "Name=vpc-id,Values=$network" Name=default-for-az,Values=true "Name=availability-zone,Values=${zones%,}" \
  --query 'sort_by(Subnets,&AvailabilityZone)[:2].[SubnetId,AvailabilityZone]' --output text)
# shellcheck disable=SC2086  # two lines of a subnet and its zone each
set -- $subnets
if [ $# -ne 4 ]; then
  echo "set_up.sh: fewer than two zones of $region have a subnet of the default VPC and $machine" >&2
  exit 2
fi
image=$(aws ec2 describe-images --owners amazon --query 'sort_by(Images,&CreationDate)[-1].ImageId' --output text \
  --filters 'Name=name,Values=Deep Learning Base*(Ubuntu 24.04)*' Name=architecture,Values=x86_64 Name=state,Values=available)

aws cloudformation deploy --stack-name mlcl --template-file cluster/aws/account.yaml --capabilities CAPABILITY_IAM \
  --no-fail-on-empty-changeset --parameter-overrides \
  "Network=$network" "SubnetA=$1" "SubnetB=$3" "SshFrom=$ssh_from" "Bucket=$bucket"
output() {
  aws cloudformation describe-stacks --stack-name mlcl \
    --query "Stacks[0].Outputs[?OutputKey=='$1'].OutputValue" --output text
}
group=$(output Group) storage=$(output FileSystem) head=$(output Head) worker=$(output Worker)
# The account's first spot machine needs this role; it may be there.
aws iam create-service-linked-role --aws-service-name spot.amazonaws.com > /dev/null 2>&1 || true

mkdir -p dist
rm -f dist/mlcl-*.whl
.venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .
[ -s ~/.ray/auth_token ] || .venv/bin/ray get-auth-token --generate > /dev/null
chmod 600 ~/.ray/auth_token
sed -e "s|ami-0123456789abcdef0|$image|" -e "s|sg-0123456789abcdef0|$group|" -e "s|fs-0123456789abcdef0|$storage|" \
  -e "s|availability_zone: .*|availability_zone: $2,$4|" -e "s|us-west-2\([ .]\)|$region\1|" \
  -e "s|arn:aws:iam::123456789012:instance-profile/mlcl-head|$head|" \
  -e "s|arn:aws:iam::123456789012:instance-profile/mlcl-worker|$worker|" cluster/ray-aws.yaml > dist/ray-aws.yaml
echo "wrote dist/ray-aws.yaml"
