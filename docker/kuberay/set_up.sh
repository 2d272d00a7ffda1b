#!/bin/sh
# Builds and pushes the images, makes secrets, and sets the cluster and all that it needs up in the namespace mlcl of
# kubectl's present context.
#
#   docker/kuberay/set_up.sh registry.example.org/mlcl STORAGE-CLASS BUCKET
#
# STORAGE-CLASS has ReadWriteMany: NFS, EFS, Filestore, CephFS. BUCKET is of S3. A second call changes what is there.
set -eu
usage="usage: set_up.sh IMAGE STORAGE-CLASS BUCKET"
image=${1:?$usage} class=${2:?$usage} bucket=${3:?$usage}
cd "$(dirname "$0")/../.."
for target in cpu gpu; do
  docker build --file docker/Dockerfile --target "$target" --tag "$image:$target" .
  docker push "$image:$target"
done
docker/kuberay/make_secrets.sh
# A variable, since a pipe would hide a failure; `printf` is the shell's own, so that no process shows the secrets.
manifests=$(kubectl kustomize docker/kuberay)
printf '%s\n' "$manifests" |
  sed -e "s|registry.example.org/mlcl|$image|" -e "s|storageClassName: efs|storageClassName: $class|" \
    -e "s|s3://example-mlflow|s3://$bucket|" |
  kubectl apply --filename -
kubectl --namespace mlcl wait --for=condition=RayClusterProvisioned raycluster/mlcl --timeout=20m
