// Records that Go writes and the page reads. Written by go test ./web -run TestDeclarations -update.
declare namespace Run {
  type Row = [N: number, ID: string, SENT: number, AT_PICKER: number, PICKED: number, PASSED: number, AT_SIDECAR: number, LEG_SENT: number, LEG_ENDED: number, AT_SERVER: number, STARTED: number, FIRST_SENT: number, PART2: number, FIRST_GOT: number, LAST_SENT: number, OVER: number, TTFT: number, TOTAL: number, ENDPOINT: number, PREFILLER: number, MODEL: number, CLASS: number, OUTCOME: number, PROMPT: number, CACHED: number, TOKENS: number, STATUS: number, ATTEMPTS: number, FLAGS: number, FETCHED: number, POOL: number, PRIORITY: number];
  type GaugeRow = [at: number, pod: number, waiting: number, running: number, ready: number, kv: number, ...adapters: string[]];
  interface Act {
    name: string;
    pool: number;
    server: number;
    for: number;
    number: number;
    to: number;
    group: string;
    path: string;
    headers: Record<string, string> | null;
    body: string;
  }
  interface Action {
    name: string;
    what: string;
    servers?: boolean;
    groups?: boolean;
    for?: boolean;
    number?: string;
    to?: string;
    breaks?: boolean;
  }
  interface Answer {
    config: string;
    decisions: number;
    moved: number;
    prefillMoved: number;
    refused: number;
    admitted: number;
    refusedInQueue: number;
    requests: Array<MovedRequest> | null;
    endpoints: Array<MovedEndpoint> | null;
    reasons: Array<MovedReason> | null;
    scores: Array<MovedScore> | null;
    was?: Explanation;
    now?: Explanation;
    move?: MovedRequest;
    notes?: Array<string>;
    lost?: number;
    first?: Difference;
  }
  interface BusySummary {
    mean: number;
    least: number;
    most: number;
  }
  interface ByHand {
    requests: number;
    statuses?: Record<string, number>;
    endpoints?: Record<string, number>;
  }
  interface CacheSummary {
    promptTokens: number;
    cachedTokens: number;
    hitRate: number;
  }
  interface ChangedScore {
    scorer: string;
    recorded: number;
    other: number;
  }
  interface ClassSummary {
    name?: string;
    requests: number;
    completed: number;
    good: number;
    missed?: Record<string, number>;
    attainment: number;
    goodput: number;
  }
  interface CostSummary {
    gpuHours: number;
    usd?: number;
    usdPerMillionOutputTokens?: number;
  }
  interface Difference {
    at: number;
    request?: string;
    serial?: number;
    field: string;
    recorded: string;
    now: string;
    plugin?: string;
  }
  interface Error {
    rows: number;
    from?: string;
    ttft: number;
    tpot: number;
  }
  interface Event {
    time: number;
    request: string;
    attempt?: number;
    hop: string;
    step: string;
    endpoint?: string;
    details?: Record<string, any>;
    at: number;
  }
  interface Expectation {
    what: string;
    expected: string;
    found: string;
    ok: boolean;
  }
  interface ExplainedEndpoint {
    name: string;
    host_port: string;
    raw: Array<number> | null;
    weighted: Array<number> | null;
    total: number;
    picked?: boolean;
    inputs?: ExplainedInputs;
    prefix_blocks_held?: number;
    prefix_blocks?: number;
    predicted?: Forecast;
  }
  interface ExplainedInputs {
    waiting: number;
    running: number;
    kv_usage: number;
    age_seconds: number;
  }
  interface ExplainedProfile {
    name: string;
    primary?: boolean;
    removed?: Array<ExplainedRemoval>;
    scorers?: Array<ExplainedScorer>;
    endpoints: Array<ExplainedEndpoint> | null;
    tied?: Array<string>;
    picked: Array<string> | null;
    picker?: string;
    more?: number;
  }
  interface ExplainedRemoval {
    by: string;
    type: string;
    endpoints: Array<string> | null;
    why?: Array<string>;
    more?: number;
  }
  interface ExplainedScorer {
    name: string;
    weight: number;
    type?: string;
  }
  interface Explanation {
    request: string;
    pool?: string;
    picker?: string;
    path?: string;
    model?: string;
    target_model?: string;
    priority?: number;
    fairness_id?: string;
    prompt_tokens?: number;
    estimated_prompt_tokens?: number;
    at_seconds: number;
    destination?: string;
    error?: string;
    status?: number;
    candidates: Array<string> | null;
    screened?: Array<ExplainedRemoval>;
    profiles?: Array<ExplainedProfile>;
    disaggregation?: string;
    prefill?: string;
    admission?: string;
    headers_added?: Record<string, string>;
    plugin_seconds?: Record<string, number>;
    point_seconds?: Record<string, number>;
    decision_seconds?: number;
    saturation?: number;
    notes?: Array<string>;
  }
  interface File {
    meta: Meta;
    frames: Array<Frame> | null;
    steps: Record<string, Array<Event>> | null;
    share: Shared;
  }
  interface Forecast {
    ttft_ms: number;
    tpot_ms: number;
    ttft_headroom_ms?: number;
    tpot_headroom_ms?: number;
  }
  interface Frame {
    meta?: Meta;
    now: number;
    gap?: number;
    snapshot?: number;
    first?: number;
    names?: Array<string>;
    namesFrom?: number;
    rows?: Array<Row>;
    pods?: Array<[string, string]>;
    gauges?: Array<GaugeRow>;
    notices?: Array<Event>;
    metrics?: Measurements;
    ended?: boolean;
  }
  interface Group {
    name?: string;
    prefill?: boolean;
    endpoints: Array<string> | null;
    settings?: string;
  }
  interface GroupSummary {
    name: string;
    servers: number;
    prefill?: boolean;
    requests: number;
    served: Served;
  }
  interface Incident {
    at: number;
    until?: number;
    hop: string;
    what: string;
    endpoint?: string;
  }
  interface IndexSummary {
    index: string;
    pods: number;
    blocks: number;
    missing: number;
    extra: number;
    excuse?: string;
    events: number;
    p50: number;
    p90: number;
    p99: number;
    max: number;
  }
  interface Known {
    waiting: number | null;
    running: number | null;
    kv: number | null;
  }
  interface Level {
    inFlight: number;
    waiting: number;
    running: number;
  }
  interface LevelSummary {
    mean: number;
    peak: number;
  }
  interface LoadSummary {
    pool?: string;
    role: string;
    servers: number;
    busy: BusySummary;
    balance?: number;
    prompts: number;
    slots: number;
    queue: LevelSummary;
    running: LevelSummary;
    kv: LevelSummary;
    preemptions: number;
    stepTimes?: Array<SteptimesSummary>;
    each?: Array<ServerSummary>;
  }
  interface Measured {
    measure: string;
    unit: string;
    value: number;
    low?: number;
    high?: number;
    why?: string;
  }
  interface Measurements {
    summary: Summary;
    windows: Array<Window> | null;
    width: number;
    level: Level;
  }
  interface Meta {
    mode: string;
    file?: string;
    scenario?: string;
    seed: number;
    version: string;
    gateway?: string;
    envoy: boolean;
    bbr?: boolean;
    kvManager?: boolean;
    pools: Array<Pool> | null;
    own?: boolean;
    do?: Array<Action>;
    whatIf?: boolean;
    search?: Search;
  }
  interface MovedEndpoint {
    endpoint: string;
    recorded: number;
    other: number;
    moved: number;
  }
  interface MovedReason {
    reason: string;
    requests: number;
  }
  interface MovedRequest {
    request: string;
    from: string;
    to: string;
    prefillFrom?: string;
    prefillTo?: string;
    why: string;
    scores?: Array<ChangedScore>;
  }
  interface MovedScore {
    scorer: string;
    compared: number;
    meanDifference: number;
    largestDifference: number;
  }
  interface Part {
    facts: Array<[string, string]> | null;
    config: string;
  }
  interface Pool {
    name: string;
    held?: boolean;
    config?: string;
    groups: Array<Group> | null;
    sidecar?: boolean;
    lives?: boolean;
  }
  interface PoolSummary {
    name: string;
    requests: number;
    outcomes?: Record<string, number>;
    served: Served;
    pickers?: Record<string, number>;
    groups?: Array<GroupSummary>;
  }
  interface PredictionError {
    count: number;
    mape: number;
    median: number;
    within10: number;
  }
  interface PredictionErrors {
    ttft: PredictionError;
    tpot: PredictionError;
  }
  interface PredictionSummary {
    ttft: PredictionError;
    tpot: PredictionError;
    unpredicted: number;
    endpoints?: Record<string, PredictionErrors>;
    windows?: Array<PredictionWindow>;
  }
  interface PredictionWindow {
    from: number;
    to: number;
    ttft: PredictionError;
    tpot: PredictionError;
  }
  interface PriceSummary {
    perGPUHour: number;
    source: string;
    cost: number;
  }
  interface Question {
    pool: string;
    config: string;
    weights: Record<string, number> | null;
    off: Array<string> | null;
    request: string;
    states: Record<string, Known> | null;
  }
  interface Range {
    low: number;
    fastest?: string;
    high: number;
    slowest?: string;
  }
  interface Replicas {
    at: number;
    starting: number;
    ready: number;
    leaving: number;
  }
  interface Run {
    widthSeconds: number;
    stretches: Array<Stretch> | null;
  }
  interface SLOSummary {
    ttft?: number;
    tpot?: number;
    e2e?: number;
  }
  interface Scaling {
    at: number;
    from: number;
    to: number;
  }
  interface Search {
    verdict: string;
    knobs: Array<SearchKnob> | null;
    objectives: Array<SearchObjective> | null;
    points: Array<SearchPoint> | null;
  }
  interface SearchKnob {
    name: string;
    range: string;
  }
  interface SearchObjective {
    name: string;
    higher?: boolean;
  }
  interface SearchPoint {
    of: string;
    values: Array<string> | null;
    at: Array<number> | null;
    results: Array<number> | null;
    texts: Array<string> | null;
    kept?: boolean;
  }
  interface Served {
    completed: number;
    promptTokens: number;
    outputTokens: number;
    ttft?: SpanSummary;
    e2e?: SpanSummary;
  }
  interface ServerSummary {
    name: string;
    endpoint: string;
    busy: number;
    queue: LevelSummary;
    running: LevelSummary;
    kv: LevelSummary;
    preemptions: number;
  }
  interface ServersSummary {
    pool: string;
    deployment: string;
    mean: number;
    least: number;
    most: number;
    started: number;
    decisions?: number;
    cut?: number;
    accelerator: string;
    gpus: number;
    gpuHours: number;
    price?: PriceSummary;
    replicas?: Array<Replicas>;
    scalings?: Array<Scaling>;
  }
  interface Shared {
    rows: number;
    of: number;
    steps: number;
  }
  interface SpanSummary {
    name: string;
    count: number;
    p50: number;
    p90: number;
    p99: number;
    max: number;
    slowest?: string;
  }
  interface SteptimesSummary {
    source: string;
    name: string;
    prompt?: number;
    ttft?: Range;
    batch?: number;
    context?: number;
    tpot?: Range;
    expected?: Error;
  }
  interface Stretch {
    from: number;
    sent: number;
    ended: number;
    good: number;
    refused: number;
    ready?: number;
  }
  interface Summary {
    scenario?: string;
    seed: number;
    interrupted?: boolean;
    duration: number;
    requests: number;
    unfinished: number;
    dropped?: number;
    outcomes: Record<string, number> | null;
    notCompleted?: Record<string, Array<string>>;
    refusals?: Record<string, number>;
    incidents?: Array<Incident>;
    hops: Record<string, Record<string, number>> | null;
    endpoints?: Record<string, number>;
    prefillServers?: Record<string, number>;
    spans?: Array<SpanSummary>;
    measures?: Array<Measured>;
    slo?: SLOSummary;
    warmUpSeconds?: number;
    byHand?: ByHand;
    prefixCache?: CacheSummary;
    transfers?: TransferSummary;
    predictions?: PredictionSummary;
    indexLag?: Array<IndexSummary>;
    warnings?: Array<Warning>;
    hopTimes?: Times;
    load?: Array<LoadSummary>;
    classes?: Array<ClassSummary>;
    servers?: Array<ServersSummary>;
    missed?: Record<string, number>;
    overTime?: Run;
    cost?: CostSummary;
    pools?: Array<PoolSummary>;
    expectations?: Array<Expectation>;
  }
  interface Times {
    network?: string;
    envoy?: string;
    extProc?: string;
    sidecar?: string;
    scrape?: string;
  }
  interface TransferSummary {
    count: number;
    bytes: number;
    p50: number;
    p90: number;
    p99: number;
    max: number;
  }
  interface Warning {
    plugin: string;
    url: string;
    reason: string;
    count: number;
  }
  interface Window {
    from: number;
    sent?: number;
    outcomes?: Record<string, number>;
    good?: number;
    ttft?: Array<number>;
    tpot?: Array<number>;
    e2e?: Array<number>;
    promptTokens?: number;
    cachedTokens?: number;
    tokens?: number;
    inFlight: number;
    waiting: number;
    running: number;
    kv?: Array<number>;
  }
}
