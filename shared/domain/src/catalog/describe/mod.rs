//! The form in which EC2 describes instance types, and its reading into facts.
//!
//! [`InstanceTypeInfo`] is one element of DescribeInstanceTypes' `InstanceTypes[]`, [`Limits`] are the two tables that
//! EC2 doesn't serve, and [`facts`] joins both. It doesn't decide what a node of the type offers.

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
