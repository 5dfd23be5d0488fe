//! EC2's descriptions of instance types, read into facts.
//!
//! [`InstanceTypeInfo`] is one element of DescribeInstanceTypes' `InstanceTypes[]`, [`Limits`] are two tables that no
//! API serves, and [`facts`] joins both. It doesn't decide the capacity of a node.

mod limits;
mod read;
mod wire;

pub use limits::{EniLimits, Limits, LimitsError};
pub use read::{FactsError, facts};
pub use wire::{
    CoreInfo, DeviceInfo, EbsInfo, EbsOptimizedInfo, EfaInfo, GpuInfo, InferenceAcceleratorInfo,
    InstanceStorageInfo, InstanceTypeInfo, MemoryInfo, NetworkCardInfo, NetworkInfo, NeuronInfo,
    PlacementGroupInfo, ProcessorInfo, VCpuInfo,
};
