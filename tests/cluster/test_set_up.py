"""Tests the scripts that set clusters up, with fakes for the programs that they call."""

import json
import subprocess
import sys

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

FAKE = """
import json, os, sys
words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as log:
    token = os.environ.get("RAY_AUTH_TOKEN_PATH")
    name = os.path.basename(sys.argv[0])
    text = sys.stdin.read() if words == ["apply", "--filename", "-"] else ""
    log.write(json.dumps({"name": name, "words": words, "token": token, "input": text}) + "\\n")
for start, answer in json.loads(os.environ["ANSWERS"]).items():
    if all(word in words for word in start.split()):
        print(answer)
        break
"""


class Clone:
    """A copy of the scripts in a folder, where programs on the path are fakes that record their calls."""

    def __init__(self, root, folder):
        self.folder, self.log = folder / "clone", folder / "calls"
        self.folder.mkdir()
        for name in ("cluster", "docker"):
            subprocess.run(["cp", "-r", root / name, self.folder], check=True)
        self.programs = folder / "programs"
        for path in (self.programs, self.folder / ".venv/bin"):
            path.mkdir(parents=True)
        self.home = folder / "home"
        (self.home / ".ray").mkdir(parents=True)

    def fake(self, *names, place=None):
        for name in names:
            file = (place or self.programs) / name
            file.write_text(f"#!{sys.executable}\n{FAKE}")
            file.chmod(0o755)

    def run(self, script, *words, **answers):
        self.log.write_text("")
        environment = {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "HOME": str(self.home),
            "CALLS": str(self.log),
            "ANSWERS": json.dumps(answers),
        }
        command = [self.folder / script, *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def calls(self, name):
        calls = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [call for call in calls if call["name"] == name]


@pytest.fixture
def clone(root, tmp_path):
    return Clone(root, tmp_path)


AWS = {
    "get region": "eu-central-1",
    "describe-instance-type-offerings": "eu-central-1a\teu-central-1b\teu-central-1c",
    "describe-vpcs": "vpc-1",
    "describe-subnets": "subnet-1\teu-central-1a\nsubnet-2\teu-central-1c",
    "describe-images": "ami-2",
    "Stacks[0].Outputs[?OutputKey=='Group'].OutputValue": "sg-3",
    "Stacks[0].Outputs[?OutputKey=='FileSystem'].OutputValue": "fs-4",
    "Stacks[0].Outputs[?OutputKey=='Head'].OutputValue": "arn:aws:iam::5:instance-profile/head",
    "Stacks[0].Outputs[?OutputKey=='Worker'].OutputValue": "arn:aws:iam::5:instance-profile/worker",
}


def test_the_launchers_file_for_an_account_has_nothing_left_to_fill_in(clone):
    clone.fake("aws")
    clone.fake("python", "ray", place=clone.folder / ".venv/bin")
    (clone.home / ".ray" / "auth_token").write_text("token")
    process = clone.run("cluster/aws/set_up.sh", "203.0.113.7/32", "data", **AWS)
    assert process.returncode == 0, process.stderr
    text = (clone.folder / "dist/ray-aws.yaml").read_text()
    assert not [part for part in ("0123456789", "123456789012", "us-west-2") if part in text]
    config = prepare_config(yaml.safe_load(text))
    validate_config(config)
    assert config["provider"]["region"] == "eu-central-1"
    assert config["provider"]["availability_zone"] == "eu-central-1a,eu-central-1c"
    nodes = {name: node["node_config"] for name, node in config["available_node_types"].items()}
    for name, profile in (("head", "head"), ("gpu", "worker")):
        assert nodes[name]["ImageId"] == "ami-2"
        assert nodes[name]["SecurityGroupIds"] == ["sg-3"]
        assert nodes[name]["IamInstanceProfile"] == {"Arn": f"arn:aws:iam::5:instance-profile/{profile}"}
    assert any(
        "fs-4.efs.eu-central-1.amazonaws.com:/ /storage" in command for command in config["setup_commands"]
    )
    (stack,) = [call["words"] for call in clone.calls("aws") if "deploy" in call["words"]]
    parameters = {
        "Network=vpc-1",
        "SubnetA=subnet-1",
        "SubnetB=subnet-2",
        "SshFrom=203.0.113.7/32",
        "Bucket=data",
    }
    assert parameters <= set(stack)
    assert ["-m", "pip", "wheel"] == clone.calls("python")[0]["words"][:3]
    assert clone.calls("ray") == []  # the token exists already


def test_an_account_without_two_zones_is_refused_before_anything_is_made(clone):
    clone.fake("aws")
    process = clone.run(
        "cluster/aws/set_up.sh", "203.0.113.7/32", **AWS | {"describe-subnets": "subnet-1\ta"}
    )
    assert process.returncode == 2
    assert "fewer than two zones" in process.stderr
    assert not [call for call in clone.calls("aws") if "deploy" in call["words"]]
    assert not (clone.folder / "dist").exists()


def template(root):
    """Returns the stack's template; CloudFormation's YAML tags become mappings with one key."""

    class Loader(yaml.SafeLoader):
        pass

    def tagged(loader, suffix, node):
        if isinstance(node, yaml.ScalarNode):
            return {suffix: loader.construct_scalar(node)}
        return {suffix: loader.construct_sequence(node, deep=True)}

    Loader.add_multi_constructor("!", tagged)
    text = (root / "cluster/aws/account.yaml").read_text()
    assert not [token for token in yaml.scan(text) if isinstance(token, yaml.AliasToken)]  # AWS refuses it
    return yaml.load(text, Loader)


def test_the_stack_lets_in_ssh_from_one_network_and_nfs_from_the_machines(root):
    tree = template(root)
    resources = tree["Resources"]
    assert set(tree["Outputs"]) == {"Group", "FileSystem", "Head", "Worker"}
    (ssh,) = resources["Nodes"]["Properties"]["SecurityGroupIngress"]
    assert (ssh["FromPort"], ssh["ToPort"], ssh["CidrIp"]) == (22, 22, {"Ref": "SshFrom"})
    (files,) = resources["Files"]["Properties"]["SecurityGroupIngress"]
    assert (files["FromPort"], files["SourceSecurityGroupId"]) == (2049, {"GetAtt": "Nodes.GroupId"})
    assert resources["Storage"]["DeletionPolicy"] == "Retain"
    assert resources["Storage"]["Properties"]["Encrypted"] is True
    assert "Policies" not in resources["WorkerRole"]["Properties"]
    (policy,) = resources["HeadRole"]["Properties"]["Policies"]
    statements = [
        statement
        for statement in policy["PolicyDocument"]["Statement"]
        if "Terminate" in str(statement["Action"])
    ]
    launcher = yaml.safe_load((root / "cluster/ray-aws.yaml").read_text())
    tag = {"aws:ResourceTag/ray-cluster-name": launcher["cluster_name"]}
    assert [statement["Condition"] for statement in statements] == [{"StringEquals": tag}]


def test_a_machine_with_the_heads_address_is_the_head_and_the_others_are_workers(root, clone):
    clone.fake("hostname")
    clone.fake("ray", place=clone.folder / ".venv/bin")
    starts = []
    for addresses in ("10.0.0.1 172.17.0.1", "10.0.0.11", "10.0.0.1"):
        assert clone.run("cluster/lab.sh", "10.0.0.1", **{"-I": addresses}).returncode == 0
        (call,) = clone.calls("ray")
        starts.append((call["words"][:3], (clone.folder / "outputs/ray.token").read_text()))
        assert call["token"] == str(clone.folder / "outputs/ray.token")
    head, worker = ["start", "--head", "--num-cpus"], ["start", "--address", "10.0.0.1:6379"]
    token = starts[0][1]
    assert starts == [(head, token), (worker, token), (head, token)]
    assert len(token) == 64
    assert (clone.folder / "outputs/ray.token").stat().st_mode & 0o777 == 0o600
    assert (
        yaml.safe_load((root / "cluster/lab.yaml").read_text())["ray"]["token"]["file"] == "outputs/ray.token"
    )


def test_images_class_and_bucket_are_filled_in_and_secrets_are_no_argument(root, clone):
    clone.fake("docker", "kubectl")
    services = (root / "cluster/kuberay/services.yaml").read_text()
    cluster = (root / "cluster/kuberay/raycluster.yaml").read_text()
    kustomized = f"{services}\n---\n{cluster}"
    process = clone.run(
        "docker/kuberay/set_up.sh", "10.0.0.9:5000/mlcl", "nfs", "results", kustomize=kustomized
    )
    assert process.returncode == 0, process.stderr
    docker_calls = [call["words"] for call in clone.calls("docker")]
    assert [words[-1] for words in docker_calls if words[0] == "push"] == [
        "10.0.0.9:5000/mlcl:cpu",
        "10.0.0.9:5000/mlcl:gpu",
    ]
    assert [words[0] for words in docker_calls] == ["build", "push"] * 2
    apply_calls = [call for call in clone.calls("kubectl") if call["words"][0] == "apply"]
    assert [call["words"] for call in apply_calls] == [["apply", "--filename", "-"]]
    trees = list(yaml.safe_load_all(apply_calls[0]["input"]))
    assert len(trees) == len(list(yaml.safe_load_all(kustomized)))
    text = yaml.safe_dump_all(trees)
    assert not [part for part in ("example", "storageClassName: efs") if part in text]
    assert "storageClassName: nfs" in text
    assert "--artifacts-destination=s3://results" in text
    assert text.count("image: 10.0.0.9:5000/mlcl:") == 3
    assert (clone.folder / "docker/kuberay/secrets/auth_token").exists()
    assert clone.calls("kubectl")[-1]["words"][:3] == ["--namespace", "mlcl", "wait"]


def test_a_failed_build_stops_the_set_up(clone):
    clone.fake("kubectl")
    (clone.programs / "docker").write_text("#!/bin/sh\nexit 1\n")
    (clone.programs / "docker").chmod(0o755)
    assert clone.run("docker/kuberay/set_up.sh", "image", "class", "bucket").returncode == 1
    assert clone.calls("kubectl") == []


def test_the_operator_is_where_the_network_policy_expects_it(root):
    folder = root / "docker/kuberay/operator"
    operator = yaml.safe_load((folder / "kustomization.yaml").read_text())
    namespace_file, remote = operator["resources"]
    assert yaml.safe_load((folder / namespace_file).read_text())["metadata"]["name"] == operator["namespace"]
    assert remote.endswith("?ref=v1.7.0")
    policies = yaml.safe_load_all((root / "cluster/kuberay/services.yaml").read_text())
    (policy,) = [tree for tree in policies if tree["kind"] == "NetworkPolicy"]
    label = {"kubernetes.io/metadata.name": operator["namespace"]}
    assert {"namespaceSelector": {"matchLabels": label}} in policy["spec"]["ingress"][0]["from"]


@pytest.mark.parametrize("script", ["cluster/lab.sh", "cluster/aws/set_up.sh", "docker/kuberay/set_up.sh"])
def test_without_arguments_a_script_says_how_it_is_used(root, script):
    process = subprocess.run(["sh", root / script], capture_output=True, text=True)
    assert (process.returncode > 0, process.stdout) == (True, "")  # the number is the shell's
    assert f"usage: {script.rpartition('/')[2]} " in process.stderr
