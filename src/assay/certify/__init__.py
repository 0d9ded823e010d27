"""Certification of an agent against its manifest: plan, run, certificate, verify, diff."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "Certification",
    "CertificationAborted",
    "CertificationInterrupted",
    "CertificationPlan",
    "CertificationResult",
    "CertificationVerdict",
    "CertifySettings",
    "Cost",
    "CriterionOutcome",
    "IssueOptions",
    "KeyPair",
    "ManifestChange",
    "SigningKey",
    "Verification",
    "VerifyPolicy",
    "VerifyingKey",
    "certify",
    "compare_manifests",
    "generate_key",
    "plan_certifications",
    "read_signing_key",
    "read_verifying_key",
    "verify_certificate",
    "write_reports",
]
