"""Certification: an agent held to the definition of done in its manifest."""

from .manifest_changes import ManifestChange, compare_manifests
from .plan import CertificationPlan, plan_certifications, refuse_hopeless
from .plan_report import PlannedCriterion, PlanReport, report_plan
from .reports import Issuing, write_reports
from .running import BrokeOff, Interrupted, certify
from .settings import CertifySettings
from .signing import (
    KeyPair,
    SigningKey,
    VerifyingKey,
    generate_key,
    read_signing_key,
    read_verifying_key,
)
from .verifying import Demands, Verification, verify_certificate

__all__ = [
    "BrokeOff",
    "CertificationPlan",
    "CertifySettings",
    "Demands",
    "Interrupted",
    "Issuing",
    "KeyPair",
    "ManifestChange",
    "PlanReport",
    "PlannedCriterion",
    "SigningKey",
    "Verification",
    "VerifyingKey",
    "certify",
    "compare_manifests",
    "generate_key",
    "plan_certifications",
    "read_signing_key",
    "read_verifying_key",
    "refuse_hopeless",
    "report_plan",
    "verify_certificate",
    "write_reports",
]
