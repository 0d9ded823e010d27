"""The public names of every unit: what users may import."""

# One entry a module that users import from, its names in any order and on any number of lines.
PUBLIC = {
    "assay": """
        Endpoint EvalConfig EvaluateResult EvaluationRow Manifest Message Metric MetricResult
        Sample Score Status StepOutput Trajectory __version__ evaluate evaluate_sync evaluation_test
        compare load_samples rescore
    """,
    "assay.agents": """
        Agent AgentFault CodingAgent CommandAgent FunctionAgent HttpAgent Limits ModelAgent
        RolloutFailed RunContext resolve_agent run_agent
    """,
    "assay.certify": """
        Certification CertificationAborted CertificationInterrupted CertificationPlan
        CertificationResult CertificationVerdict CertifySettings Cost CriterionOutcome
        IssueOptions KeyPair ManifestChange SigningKey Verification VerifyPolicy VerifyingKey
        certify compare_manifests generate_key plan_certifications read_signing_key
        read_verifying_key verify_certificate write_reports
    """,
    "assay.cli": "main",
    "assay.compat": "install",
    "assay.datasets": """
        Adapter FetchRules GoldenDataset OnBadRow PromptTemplate ReadLimits SampleStream
        SkippedRows Source fetch_golden load_samples read_golden read_prompt
    """,
    "assay.environments": """
        BasicEnvironment CalculatorEnvironment Environment EnvironmentServer GymEnvironment
        RemoteEnvironments ServerProcess ServerSettings Step ToolEnvironment ToolError
        launch_server tool wait_until_ready
    """,
    "assay.errors": """
        AccessDenied AssayError BadRow ConfigError DatasetError DatasetOutOfReach EndpointError
        EnvironmentFault GatewayFault ManifestError MissingExtra ReplayDifference RunStopped
        ScorerFault StoreError TokenError TrainingError WireError install_command
    """,
    "assay.export": """
        Correction ExportOptions ExportReport FORMATS Format Selection Split export_samples
    """,
    "assay.gateway": "Gateway GatewayLimits GatewaySession GatewaySettings expand_request",
    "assay.formats": """
        AgentOutput AnthropicChat Converted Dropped GeminiChat attach_result
        attach_trajectory_result convert_agent_output eval_record_schema from_anthropic from_atif
        from_eval_record from_fireworks_rft from_gemini from_huggingface from_openai_chat
        from_openai_finetuning from_openenv_trace from_sharegpt from_trl from_verl from_vertex
        read_result read_trajectory_result to_anthropic to_atif to_eval_record to_gemini
        to_huggingface to_openai_chat to_vertex
    """,
    "assay.providers": """
        ClientSettings LocalClient LocalModel ModelClient Provider Reply Sampling
        check_endpoint connect parse_model
    """,
    "assay.pytest_plugin": "evaluation_test",
    "assay.registry": """
        Plugin PluginEntry find_plugin list_names list_plugin_names list_plugins
    """,
    "assay.runner": """
        EvalConfig EvalReport Progress RaySettings RescoreOptions Resume RunLimits RunSamples Shard
        ShardReport Stop evaluate evaluate_sync run_shard
        rescore show_progress
    """,
    "assay.scorers": """
        Calibration Checks Criterion Judge JudgeSettings PairJudge PairTally RegisteredMetric
        Rubric ScoreFunction Scorer VertexJudge calibrate check_passed checks_from exact_answer
        extract_number judge prefer read_labels read_rubric reward_function rubric_names
        vertex_judge
    """,
    "assay.sessions": """
        Children RecordedSession SampleOptions SessionChoice SessionMeta SessionReading
        SessionStream UnreadableSession read_atif read_claude_code read_codex read_inspect
        read_opencode read_plugin_sessions
    """,
    "assay.stats": """
        AdjustedComparison Check Comparison Conclusion GateRule Interval ResultLike RunSummary
        Verdict compare compare_runs detectable_difference judge_gate mean_interval pass_at_k
        pass_hat_k summarise
    """,
    "assay.store": """
        AttemptRow CopyProgress ResultRow ResultTable Run RunRow RunSpec SampleLabel SessionRow
        StepRow copy_run
        Store StoreSettings TableGroup TablePage TableQuery TableRow sample_key
    """,
    "assay.train": """
        ChatTokenizer ForkedRollout GRPOConfig GRPOResult Lora MemoryEstimate MetricSink MetricsFile
        PolicyWeights ReloadVLLM Retokenizer SFTConfig SFTResult StepMetrics TokenSource
        TrackedTraining TrainingSession UploadWeights
        agent_rollout_to_sample agent_rollout_to_samples character_model estimate_memory
        grpo_train grpo_train_async retokenize_sample sft_train token_source tokenize_sample
    """,
    "assay.types": """
        AgentDefinition AgentSession Boundary ContentBlock DataBlock Endpoint EvaluateResult
        EvaluationProfile EvaluationRow Failure InlineTool Manifest ManifestMetadata
        McpResourceDefinition Message Metric MetricResult ModelCall PlaceholderDefinition
        RemoteTool Role Sample Score SkillDefinition SourceFile Status StepOutput SuccessCriterion
        TextBlock ToolCall ToolDefinition ToolPackDefinition ToolSpec Trajectory Usage Workflow
        WorkflowStep info_schema stable_id
    """,
    "assay.web": "ViewServer ViewSettings write_static_report",
}
